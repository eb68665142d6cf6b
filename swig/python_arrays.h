/* Lists of arrays in Python: writable, C-contiguous buffers, used in place. */
#ifndef POLYVERSO_SWIG_PYTHON_ARRAYS_H
#define POLYVERSO_SWIG_PYTHON_ARRAYS_H

typedef struct {
  Py_ssize_t count, lent; /* buffers 0 to lent - 1 must be released */
  Py_buffer *views;
  mv_array *arrays;
} pv_array_list;

static void pv_release_arrays(pv_array_list *list) {
  for (Py_ssize_t i = 0; i < list->lent; ++i) PyBuffer_Release(&list->views[i]);
  PyMem_Free(list->views);
  PyMem_Free(list->arrays);
  memset(list, 0, sizeof *list);
}

static int pv_lend_array(PyObject *object, const char *function, pv_array_list *list, Py_ssize_t i) {
  char what[32];
  snprintf(what, sizeof what, "array %zd", i);
  Py_buffer *const view = &list->views[i];
  if (!pv_view(object, function, what, PyBUF_WRITABLE, view)) return 0;
  list->lent = i + 1;
  list->arrays[i].data = view->buf;
  list->arrays[i].count = (uint64_t)(view->len / view->itemsize);
  list->arrays[i].dtype = pv_dtype(view);
  return list->arrays[i].dtype > 0 ||
         pv_refuse(MV_EDTYPE, function, "array %zd has elements of the unsupported format '%.20s'", i, view->format ? view->format : "B");
}

/* Reads a sequence of buffers. The caller releases the list, also on failure. */
static int pv_lend_arrays(PyObject *object, const char *function, pv_array_list *list) {
  PyObject *const items = PySequence_Fast(object, "");
  if (!items) {
    PyErr_Clear();
    return pv_refuse(MV_EINVAL, function, "a list of arrays is needed, not %.100s", pv_type_name(object));
  }
  list->count = PySequence_Size(items);
  list->views = (Py_buffer *)PyMem_Calloc((size_t)list->count + 1, sizeof *list->views);
  list->arrays = (mv_array *)PyMem_Calloc((size_t)list->count + 1, sizeof *list->arrays);
  int lent = list->views && list->arrays;
  if (!lent) PyErr_NoMemory();
  for (Py_ssize_t i = 0; lent && i < list->count; ++i) lent = pv_lend_array(pv_fast_item(items, i), pv_array_of(function, (uint64_t)i), list, i);
  Py_DECREF(items);
  return lent;
}

/* Keeps the list's buffers alive and in place as long as `holder`, a dict, has them under this handle. */
static int pv_hold_views(PyObject *holder, int64_t handle, PyObject *object) {
  PyObject *const views = PySequence_List(object);
  PyObject *const key = views ? PyLong_FromLongLong(handle) : NULL;
  int held = key != NULL;
  for (Py_ssize_t i = 0; held && i < PyList_Size(views); ++i) {
    PyObject *const view = pv_memoryview(PyList_GetItem(views, i));
    held = view && PyList_SetItem(views, i, view) == 0; /* this steals the reference to the view */
  }
  held = held && PyDict_SetItem(holder, key, views) == 0;
  Py_XDECREF(views);
  Py_XDECREF(key);
  return held;
}

/* pv_hold_views() until the request is settled. */
static int pv_hold_arrays(mv_request request, PyObject *object) {
  const int held = pv_hold_views(pv_held, request, object);
  if (!held) mv_request_cancel(request);
  return held;
}

/* pv_hold() of a receive's data, and of the place for its sender's rank. Either may be None. */
static int pv_hold_with_place(mv_request request, PyObject *data, PyObject *place) {
  if (place == Py_None) return pv_hold(request, data);
  if (data == Py_None) return pv_hold(request, place);
  PyObject *const both = PyTuple_Pack(2, data, place);
  const int held = both && pv_hold_arrays(request, both);
  if (!both) mv_request_cancel(request);
  Py_XDECREF(both);
  return held;
}

/* ------------------------------------------------------------------ custom reductions */

/* {custom: its arrays' memoryviews}, from begin to end. */
static PyObject *pv_customs;

static int pv_custom_begun(mv_custom custom, PyObject *object) {
  const int held = (pv_customs || (pv_customs = PyDict_New())) && pv_hold_views(pv_customs, custom, object);
  if (!held) mv_custom_end(custom, NULL);
  return held;
}

/* The number of arrays that the reduction has; -1: it was not begun here, or has ended. */
static int64_t pv_custom_arrays(mv_custom custom) {
  PyObject *const key = PyLong_FromLongLong(custom);
  PyObject *const views = pv_customs && key ? PyDict_GetItemWithError(pv_customs, key) : NULL;
  Py_XDECREF(key);
  return views ? (int64_t)PyList_Size(views) : -1;
}

static void pv_custom_ended(mv_custom custom) {
  PyObject *const key = PyLong_FromLongLong(custom);
  if (pv_customs && key && PyDict_Contains(pv_customs, key) == 1) PyDict_DelItem(pv_customs, key);
  Py_XDECREF(key);
}

#endif
