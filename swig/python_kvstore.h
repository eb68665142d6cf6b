/* Key-value stores in Python: the keys and the tensors of a call. `*items` keeps their objects alive; the caller
 * drops it and frees the arrays, also on failure. */
#ifndef POLYVERSO_SWIG_PYTHON_KVSTORE_H
#define POLYVERSO_SWIG_PYTHON_KVSTORE_H

static int pv_is_key(PyObject *object) { return PyUnicode_Check(object) || PyIndex_Check(object); }

/* One object, or a sequence of them, as a new list that no other code changes; NULL with an exception. */
static PyObject *pv_list_of(PyObject *object, int is_one, const char *function, const char *what) {
  if (is_one) return Py_BuildValue("[O]", object);
  PyObject *list = PySequence_List(object);
  if (list || !PyErr_ExceptionMatches(PyExc_TypeError)) return list;
  PyErr_Clear();
  pv_refuse(MV_EINVAL, function, "%s, or a sequence of them, is needed, not %.60s", what, pv_type_name(object));
  return NULL;
}

static int pv_read_key(PyObject *key, const char *function, kv_keys *keys, Py_ssize_t place) {
  if (!pv_is_key(key))
    return pv_refuse(MV_EINVAL, function, "key %zd must be an int or a str, not %.60s", place, pv_type_name(key));
  if (PyUnicode_Check(key) != (keys->names != NULL))
    return pv_refuse(MV_EINVAL, function, "keys must be all numbers or all names, but key 0 is a %s and key %zd is not",
                     keys->names ? "name" : "number", place);
  if (keys->names) return pv_text(key, function, (const char **)&keys->names[place]);
  PyObject *number = PyNumber_Index(key);
  const int fits = number && pv_integer(number, function, 2, "key", (int64_t *)&keys->numbers[place]);
  Py_XDECREF(number);
  return fits;
}

static int pv_keys(PyObject *object, const char *function, kv_keys *keys, PyObject **items) {
  if (!(*items = pv_list_of(object, pv_is_key(object), function, "an int or a str"))) return 0;
  const Py_ssize_t count = PyList_Size(*items);
  void *room = PyMem_Calloc((size_t)count + 1, sizeof(int64_t) > sizeof(char *) ? sizeof(int64_t) : sizeof(char *));
  if (!room) return PyErr_NoMemory() != NULL;
  if (count > 0 && PyUnicode_Check(PyList_GetItem(*items, 0)))
    keys->names = (const char *const *)room;
  else
    keys->numbers = (const int64_t *)room;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!pv_read_key(PyList_GetItem(*items, i), function, keys, i)) return 0;
  keys->count = (uint64_t)count;
  return 1;
}

static int pv_is_tensor(PyObject *object) {
  return PyObject_TypeCheck(object, (PyTypeObject *)pv_tensor_type) || PyIndex_Check(object);
}

/* Copies the lists within the list. Returns the number of tensors, -1 with an exception. */
static Py_ssize_t pv_spread(PyObject *list, const char *function, int *is_nested) {
  Py_ssize_t count = 0;
  for (Py_ssize_t i = 0; i < PyList_Size(list); ++i) {
    PyObject *item = PyList_GetItem(list, i);
    if (pv_is_tensor(item)) {
      ++count;
      continue;
    }
    PyObject *inner = pv_list_of(item, 0, function, "a tensor");
    if (!inner) return -1;
    *is_nested = 1;
    count += PyList_Size(inner);
    PyList_SetItem(list, i, inner);
  }
  return count;
}

/* The tensors of {"tensors": ..., "priority": ...}, a borrowed reference; any other argument as it is. NULL with an
 * exception. */
static PyObject *pv_tensors_of(PyObject *object, const char *function, int position, kv_values *values) {
  if (!PyDict_Check(object)) return object;
  PyObject *tensors = PyDict_GetItemString(object, "tensors"), *priority = PyDict_GetItemString(object, "priority");
  if (!tensors || PyDict_Size(object) != (priority ? 2 : 1)) {
    pv_refuse(MV_EINVAL, function, "a dict of values must have the keys 'tensors' and 'priority'");
    return NULL;
  }
  if (priority && !PyIndex_Check(priority)) {
    pv_refuse(MV_EINVAL, function, "priority must be an int, not %.60s", pv_type_name(priority));
    return NULL;
  }
  return !priority || pv_integer(priority, function, position, "priority", &values->priority) ? tensors : NULL;
}

/* Reads the tensors of `key_count` keys. A flat list does not determine the number for each key: the C function
 * does. In a list that contains lists, each element belongs to one key. A key without any has 0, which the C
 * function refuses. */
static int pv_tensors(PyObject *object, const char *function, int position, uint64_t key_count, kv_values *values,
                      PyObject **items) {
  int is_nested = 0;
  if (object == Py_None) return 1;
  if (!(object = pv_tensors_of(object, function, position, values))) return 0;
  if (!(*items = pv_list_of(object, pv_is_tensor(object), function, "a tensor"))) return 0;
  const Py_ssize_t count = pv_spread(*items, function, &is_nested), length = PyList_Size(*items);
  if (count < 0) return 0;
  mv_tensor *tensors = (mv_tensor *)PyMem_Calloc((size_t)count + 1, sizeof *tensors);
  values->tensors = tensors;
  uint64_t *per_key = is_nested ? (uint64_t *)PyMem_Calloc((size_t)length + key_count, sizeof *per_key) : NULL;
  values->per_key = per_key;
  if (!tensors || (is_nested && !per_key)) return PyErr_NoMemory() != NULL;
  for (Py_ssize_t i = 0; i < length; ++i) {
    PyObject *item = PyList_GetItem(*items, i);
    const Py_ssize_t some = PyList_Check(item) ? PyList_Size(item) : 1;
    for (Py_ssize_t k = 0; k < some; ++k) {
      PyObject *one = PyList_Check(item) ? PyList_GetItem(item, k) : item;
      if (!pv_tensor_handle(one, function, position, &tensors[values->count++])) return 0;
    }
    if (per_key) per_key[i] = (uint64_t)some;
  }
  return 1;
}

/* Keeps the tensors that a request fills until it is settled. */
static int pv_hold_all(mv_request request, PyObject *items) {
  PyObject *key = PyLong_FromLongLong(request);
  const int held = key && PyDict_SetItem(pv_held, key, items) == 0;
  if (!held) mv_request_cancel(request);
  Py_XDECREF(key);
  return held;
}

#endif
