/* Helpers of the Python typemaps. All of them run with the interpreter lock held and, on failure, return 0 or NULL
 * with an exception set. */
#ifndef POLYVERSO_SWIG_PYTHON_VALUES_H
#define POLYVERSO_SWIG_PYTHON_VALUES_H

/* Whether a tensor on a device exports its memory, which nothing but a C function that takes it may access. */
static _Thread_local int pv_lends_devices;

static const mv_call_options pv_call_defaults = MV_CALL_OPTIONS_INIT;

/* Buffers that unfinished asynchronous gets write into: {request: memoryview}, so that they are not freed or
 * resized. */
static PyObject *pv_held;

/* Requests that were dropped while they used such a buffer: a set, as {request: None}. */
static PyObject *pv_dropped;

static int pv_start(void) { return (pv_held || (pv_held = PyDict_New())) && (pv_dropped || (pv_dropped = PyDict_New())); }

/* What %init returns on failure, after an exception: since SWIG 4.4 it is part of a function that returns int. */
#if defined(SWIG_VERSION) && SWIG_VERSION >= 0x040400
#define PV_NOT_IMPORTED -1
#else
#define PV_NOT_IMPORTED NULL
#endif

/* ------------------------------------------------------------------ what CPython's stable ABI lacks */

/* An item of what PySequence_Fast() returned, a borrowed reference. */
static PyObject *pv_fast_item(PyObject *items, Py_ssize_t i) {
  return PyList_Check(items) ? PyList_GetItem(items, i) : PyTuple_GetItem(items, i);
}

/* The name of an object's class for messages, such as "numpy.ndarray": valid until the next call. Preserves no exception. */
static const char *pv_type_name(PyObject *object) {
  static char text[128];
  PyTypeObject *type = Py_TYPE(object);
  PyObject *module = PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE ? NULL : PyObject_GetAttrString((PyObject *)type, "__module__");
  PyObject *name = PyType_GetName(type);
  const char *in = module ? PyUnicode_AsUTF8AndSize(module, NULL) : NULL, *last = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  const int is_named = in && strcmp(in, "builtins") != 0;
  snprintf(text, sizeof text, "%s%s%s", is_named ? in : "", is_named ? "." : "", last ? last : "object");
  PyErr_Clear();
  Py_XDECREF(module);
  Py_XDECREF(name);
  return text;
}

/* ------------------------------------------------------------------ exceptions */

/* Text from C. Names, paths and reasons of other programs, and texts that were cut, may be no UTF-8. */
static PyObject *pv_str_of(const char *text, size_t length) { return PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace"); }
static PyObject *pv_str(const char *text) { return pv_str_of(text, strlen(text)); }

/* Raises the exception class of the status's family; polyverso/errors.py has the classes. */
static void pv_raise_text(mv_status status, const char *text) {
  PyObject *errors = PyImport_ImportModule("polyverso.errors");
  PyObject *error = errors ? PyObject_CallMethod(errors, "from_status", "iN", (int)status, pv_str(text)) : NULL;
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  Py_XDECREF(errors);
}

/* Raises mv_last_error(), or the exception that a signal's handler raised meanwhile. */
static void pv_raise(mv_status status) {
  if (PyErr_Occurred() || (status == MV_EINTR && PyErr_CheckSignals() != 0)) return;
  pv_raise_text(status, mv_last_error());
}

/* Raises an argument error that names the function: pv_refuse(MV_EDTYPE, "mv_table_add", "data is %s", ...). */
static int pv_refuse(mv_status status, const char *function, const char *format, ...) {
  char text[PV_MESSAGE_SIZE];
  int used = snprintf(text, sizeof text, "%s: ", function);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
  va_end(arguments);
  pv_raise_text(status, text);
  return 0;
}

/* Raises the TypeError of polyverso/errors.py. */
static int pv_refuse_type(const char *function, const char *needed, PyObject *given) {
  char text[PV_MESSAGE_SIZE];
  snprintf(text, sizeof text, "%s: %s is needed, not %.60s", function, needed, pv_type_name(given));
  PyObject *errors = PyImport_ImportModule("polyverso.errors");
  PyObject *error = errors ? PyObject_CallMethod(errors, "wrong_type", "s", text) : NULL;
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  Py_XDECREF(errors);
  return 0;
}

/* ------------------------------------------------------------------ signals and unfinished requests */

/* A signal interrupted a blocking call, which continues under a handle: waits for its end, unless the handler
 * raises. */
static mv_status pv_resume(const mv_call_options *options) {
  mv_status status = MV_EINTR;
  while (status == MV_EINTR && *options->request != 0) {
    if (PyErr_CheckSignals() != 0) {
      mv_request_cancel(*options->request);
      return MV_EINTR;
    }
    Py_BEGIN_ALLOW_THREADS
    status = mv_request_wait(*options->request, 0);
    Py_END_ALLOW_THREADS
  }
  return status;
}

static void pv_sweep(void);

/* A memoryview of memory that a C function has taken, also of a device's. */
static PyObject *pv_memoryview(PyObject *object) {
  pv_lends_devices = 1;
  PyObject *const view = PyMemoryView_FromObject(object);
  pv_lends_devices = 0;
  return view;
}

/* Keeps the buffer alive and in place until its request is settled. */
static int pv_hold(mv_request request, PyObject *object) {
  pv_sweep();
  if (object == Py_None) return 1;
  PyObject *key = PyLong_FromLongLong(request);
  PyObject *view = key ? pv_memoryview(object) : NULL;
  int held = view && PyDict_SetItem(pv_held, key, view) == 0;
  if (!held) mv_request_cancel(request);
  Py_XDECREF(view);
  Py_XDECREF(key);
  return held;
}

/* Releases the request's buffer if the request is released by now. Preserves a pending exception. */
static void pv_settle(mv_request request) {
  if (PyDict_Size(pv_held) == 0) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *key = PyLong_FromLongLong(request);
  if (key && PyDict_Contains(pv_held, key) == 1 && mv_request_error(request) == MV_EHANDLE)
    PyDict_DelItem(pv_held, key);
  Py_XDECREF(key);
  PyErr_Restore(type, value, trace);
}

/* Leaves a request that can't be released yet to pv_sweep(). */
static mv_status pv_drop(mv_request request) {
  PyObject *key = PyLong_FromLongLong(request);
  const int kept = key && PyDict_SetItem(pv_dropped, key, Py_None) == 0;
  Py_XDECREF(key);
  return kept ? MV_OK : MV_ENOMEM;
}

/* Releases dropped requests that have finished. Checks all of them, but not at each call: amortized constant cost. */
static void pv_sweep(void) {
  static Py_ssize_t calls, left;
  if (PyDict_Size(pv_dropped) == 0 || ++calls < left) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyObject *keys = PyDict_Keys(pv_dropped);
  for (Py_ssize_t i = 0; keys && i < PyList_Size(keys); ++i) {
    const mv_request request = PyLong_AsLongLong(PyList_GetItem(keys, i));
    if (mv_request_release(request) == MV_EPENDING) continue;
    if (PyDict_DelItem(pv_dropped, PyList_GetItem(keys, i)) != 0) PyErr_Clear(); /* a finalizer has already removed
                                                                                     it */
    pv_settle(request);
  }
  Py_XDECREF(keys);
  PyErr_Restore(type, value, trace);
  calls = 0;
  left = PyDict_Size(pv_dropped);
}

static void pv_settle_all(void) {
  if (PyDict_Size(pv_held) == 0) return;
  PyObject *keys = PyDict_Keys(pv_held);
  for (Py_ssize_t i = 0; keys && i < PyList_Size(keys); ++i) pv_settle(PyLong_AsLongLong(PyList_GetItem(keys, i)));
  Py_XDECREF(keys);
}

/* ------------------------------------------------------------------ numbers */

static int pv_integer(PyObject *object, const char *function, int position, const char *type, int64_t *value) {
  *value = PyLong_AsLongLong(object);
  if (*value != -1 || !PyErr_Occurred()) return 1;
  if (PyErr_ExceptionMatches(PyExc_TypeError))
    PyErr_Format(PyExc_TypeError, "%s: argument %d (%s) must be an int, not %.100s", function, position, type,
                 pv_type_name(object));
  return 0;
}

static int pv_integer32(PyObject *object, const char *function, int position, const char *type, int32_t *value) {
  int64_t wide;
  if (!pv_integer(object, function, position, type, &wide)) return 0;
  *value = (int32_t)wide;
  if (*value == wide) return 1;
  PyErr_Format(PyExc_OverflowError, "%s: argument %d (%s) does not fit 32 bits", function, position, type);
  return 0;
}

static int pv_count(PyObject *object, const char *function, int position, const char *name, uint64_t *value) {
  int64_t number;
  if (!pv_integer(object, function, position, name, &number)) return 0;
  *value = (uint64_t)number;
  return number >= 0 ||
         pv_refuse(MV_EINVAL, function, "%s is %lld, a count can't be negative", name, (long long)number);
}

/* ------------------------------------------------------------------ buffers */

/* The dtype of a one-letter native format of Python's struct module; -1 for any other. */
static int pv_dtype(const Py_buffer *view) {
  const char *format = view->format ? view->format : "B";
  const uint16_t probe = 1;
  const char native = *(const char *)&probe ? '<' : '>';
  if (*format == '@' || *format == '=' || *format == native) ++format;
  if (*format == '\0' || format[1] != '\0') return -1;
  if (*format == 'f' && view->itemsize == 4) return MV_F32;
  if (*format == 'd' && view->itemsize == 8) return MV_F64;
  if (strchr("qln", *format) && view->itemsize == 8) return MV_I64;
  if (strchr("il", *format) && view->itemsize == 4) return MV_I32;
  if (*format == 'B') return MV_U8;
  if (*format == 'b') return MV_I8;
  if (*format == 'e') return MV_F16;
  if (*format == 'H' && view->itemsize == 2) return MV_BF16; /* MV_BF16: Python has no format for it, so its bits */
  return -1;
}

/* bytes, bytearray and views of them: memory without a particular dtype. */
static int pv_is_bytes(PyObject *object, const Py_buffer *view) {
  return PyBytes_Check(object) || PyByteArray_Check(object) ||
         (PyMemoryView_Check(object) && view->itemsize == 1 && (!view->format || strchr("Bbc", *view->format)));
}

/* Reports the error of an object that has no memory for the host. */
static int pv_refuse_error(mv_status status, const char *function, const char *what, const char *type) {
  PyObject *kind = NULL, *value = NULL, *trace = NULL;
  PyErr_Fetch(&kind, &value, &trace);
  PyObject *text = value ? PyObject_Str(value) : NULL;
  const char *words = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  PyErr_Clear();
  const int refused = pv_refuse(status, function, "%s is a %.100s: %.300s", what, type, words ? words : "it has no buffer");
  Py_XDECREF(text);
  Py_XDECREF(kind);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return refused;
}

/* Fills the view, or reports what is wrong with the object's memory and how to fix it. */
static int pv_view(PyObject *object, const char *function, const char *what, int writable, Py_buffer *view) {
  pv_lends_devices = pv_takes_devices(function) && strcmp(what, "source") != 0 && strcmp(what, "rows") != 0;
  const int lent = PyObject_GetBuffer(object, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | writable) == 0;
  pv_lends_devices = 0;
  if (lent) return 1;
  PyErr_Clear();
  const char *type = pv_type_name(object);
  if (!PyObject_CheckBuffer(object))
    return pv_refuse(MV_EDTYPE, function, "%s is a %.100s, not a buffer: use numpy.asarray()%s", what, type,
                     writable ? ", and take the results from that array" : "");
  if (writable && PyObject_GetBuffer(object, view, PyBUF_FULL_RO) == 0) {
    int readonly = view->readonly;
    PyBuffer_Release(view);
    if (readonly)
      return pv_refuse(MV_EINVAL, function, "%s is a read-only %.100s: results need writable memory, such as a copy by numpy.array()", what, type);
  }
  if (PyObject_GetBuffer(object, view, PyBUF_FULL_RO) != 0) return pv_refuse_error(MV_EDTYPE, function, what, type);
  PyBuffer_Release(view);
  return pv_refuse(MV_EDTYPE, function, "%s is a %.100s that is not C-contiguous: use numpy.ascontiguousarray()%s", what, type,
                   writable ? ", and take the results from that copy" : "");
}

/* A call's (data, count, dtype), without a copy: numbers of a table's dtype, or a bytes-like object's bytes as MV_RAW. */
static int pv_lend(PyObject *object, const char *function, int writable, Py_buffer *view, int *lent, uint64_t *count,
                   mv_dtype *dtype) {
  *count = 0;
  *dtype = MV_RAW;
  if (object == Py_None) return 1;
  if (!pv_view(object, function, "data", writable, view)) return 0;
  *lent = 1;
  *count = (uint64_t)view->len;
  if (pv_is_bytes(object, view)) return 1;
  *dtype = pv_dtype(view);
  *count = (uint64_t)(view->len / view->itemsize);
  return *dtype > 0 || pv_refuse(MV_EDTYPE, function,
                                 "data has elements of format '%.20s': convert it to a dtype of tables with .astype()",
                                 view->format ? view->format : "B");
}

static int pv_lend_rows(PyObject *object, const char *function, int writable, Py_buffer *view, int *lent,
                        uint64_t *count) {
  *count = 0;
  if (object == Py_None) return 1;
  if (!pv_view(object, function, "rows", writable, view)) return 0;
  *lent = 1;
  *count = (uint64_t)view->len / 8;
  if (pv_dtype(view) == MV_I64) return 1;
  return pv_refuse(MV_EDTYPE, function,
                   "rows has elements of format '%.20s': convert it with numpy.asarray(rows, dtype='int64')",
                   view->format ? view->format : "B");
}

/* ------------------------------------------------------------------ mappings */

/* Text as an argument; None is NULL. */
static int pv_text(PyObject *value, const char *function, const char **text) {
  Py_ssize_t length = 0;
  *text = NULL;
  if (value == Py_None) return 1;
  if (!PyUnicode_Check(value)) return pv_refuse_type(function, "text", value);
  if (!(*text = PyUnicode_AsUTF8AndSize(value, &length))) return 0;
  return pv_is_c_text(*text, (size_t)length) ||
         pv_refuse(MV_EINVAL, function, "\"%.100s\" contains a zero byte", *text);
}

/* A path as an argument, in the file system's encoding: text, bytes or a path object. None is NULL. `*held` keeps it. */
static int pv_path(PyObject *value, const char *function, PyObject **held, const char **path) {
  *path = NULL;
  if (value == Py_None) return 1;
  PyObject *plain = PyOS_FSPath(value);
  if (!plain) {
    PyErr_Clear();
    return pv_refuse_type(function, "a path", value);
  }
  *held = PyUnicode_Check(plain) ? PyUnicode_EncodeFSDefault(plain) : Py_NewRef(plain);
  Py_DECREF(plain);
  if (!*held) return 0;
  *path = PyBytes_AsString(*held);
  return pv_is_c_text(*path, (size_t)PyBytes_Size(*held)) ||
         pv_refuse(MV_EINVAL, function, "\"%.100s\" contains a zero byte", *path);
}

/* Stores one value in its field; `*set` = 0 with a message if it does not fit. */
static int pv_field_value(PyObject *value, const pv_field *field, void *options, int *set, char *message) {
  if (PyUnicode_Check(value)) {
    Py_ssize_t length = 0;
    const char *text = PyUnicode_AsUTF8AndSize(value, &length);
    if (text) *set = pv_field_text(options, field, text, (size_t)length, message);
    return text != NULL;
  }
  if (PyNumber_Check(value) && !PyIndex_Check(value)) {
    const double real = PyFloat_AsDouble(value);
    if (real == -1 && PyErr_Occurred()) return 0;
    *set = pv_field_real(options, field, real, message);
    return 1;
  }
  int overflow = 0;
  int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow)
    snprintf(message, PV_MESSAGE_SIZE, "option %s does not fit a signed 64-bit integer", field->key);
  else if (number == -1 && PyErr_Occurred())
    return 0;
  else
    *set = pv_field_number(options, field, number, message);
  return 1;
}

/* Sets the options' fields from a mapping; None leaves them unchanged. `*items` keeps the texts alive; the caller
 * drops it. */
static int pv_fields(PyObject *object, const char *function, const pv_field *fields, void *options, PyObject **items) {
  char message[PV_MESSAGE_SIZE];
  if (object == Py_None) return 1;
  if (!PyMapping_Check(object) || PyUnicode_Check(object) || !(*items = PyMapping_Items(object))) {
    PyErr_Clear();
    return pv_refuse(MV_EINVAL, function, "options must be a dict of its fields, not %.100s", pv_type_name(object));
  }
  for (Py_ssize_t i = 0; i < PyList_Size(*items); ++i) {
    PyObject *key, *value;
    if (!PyArg_ParseTuple(PyList_GetItem(*items, i), "OO", &key, &value)) return 0;
    const char *name = PyUnicode_Check(key) ? PyUnicode_AsUTF8AndSize(key, NULL) : "(not a string)";
    const pv_field *field = name ? pv_field_find(fields, name, message) : NULL;
    int set = 0;
    if (!name) return 0;
    if (field && value == Py_None) continue;
    if (field && !pv_field_value(value, field, options, &set, message)) return 0;
    if (!set) return pv_refuse(MV_EINVAL, function, "%s", message);
  }
  return 1;
}

static int pv_call_options(PyObject *object, const char *function, mv_call_options *options, PyObject **items) {
  if (object == Py_None) return 1;
  if (!PyLong_Check(object)) return pv_fields(object, function, pv_call_fields, options, items);
  int64_t flags = PyLong_AsLongLong(object);
  options->flags = (uint32_t)flags;
  if (flags == (int64_t)options->flags) return 1;
  PyErr_Clear();
  return pv_refuse(MV_EINVAL, function, "flags are out of range");
}

/* ------------------------------------------------------------------ results of several values */

/* Adds a value to what the function returns: the value alone, or a list of several. Steals both references. SWIG's own function has other
 * parameters since 4.3. */
static PyObject *pv_append(PyObject *result, PyObject *value) {
  if (result == Py_None) {
    Py_DECREF(result);
    return value;
  }
  if (!PyList_Check(result)) {
    PyObject *list = Py_BuildValue("[N]", result);
    if (!list) {
      Py_XDECREF(value);
      return NULL;
    }
    result = list;
  }
  if (value && PyList_Append(result, value) == 0) {
    Py_DECREF(value);
    return result;
  }
  Py_XDECREF(value);
  Py_DECREF(result);
  return NULL;
}

static char **pv_arguments(PyObject *object, const char *function, int *count) {
  if (!PyList_Check(object)) {
    pv_refuse(MV_EINVAL, function, "a list of strings is needed, not %.100s", pv_type_name(object));
    return NULL;
  }
  Py_ssize_t size = PyList_Size(object);
  char **argv = (char **)PyMem_Malloc(((size_t)size + 1) * sizeof *argv);
  if (!argv) return (char **)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < size; ++i)
    if (!(argv[i] = (char *)PyUnicode_AsUTF8AndSize(PyList_GetItem(object, i), NULL))) {
      PyMem_Free(argv);
      return NULL;
    }
  argv[size] = NULL;
  *count = (int)size;
  return argv;
}

static PyObject *pv_argument_list(int count, char **argv) {
  PyObject *list = PyList_New(count);
  for (int i = 0; list && i < count; ++i) PyList_SetItem(list, i, pv_str(argv[i]));
  return list;
}

/* Room for as many handles as the caller requests at once. */
static int pv_handles(PyObject *object, const char *function, int position, mv_request **handles, uint64_t *capacity) {
  int64_t wanted;
  *capacity = 0;
  if (!pv_integer(object, function, position, "capacity", &wanted)) return 0;
  if (wanted < 0 || wanted > 1 << 20) return pv_refuse(MV_EINVAL, function, "capacity must be 0 .. 1048576");
  *capacity = (uint64_t)wanted;
  *handles = (mv_request *)PyMem_Malloc((size_t)(wanted + 1) * sizeof(mv_request));
  return *handles || PyErr_NoMemory();
}

static PyObject *pv_handle_list(const mv_request *handles, uint64_t count) {
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (uint64_t i = 0; list && i < count; ++i) PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromLongLong(handles[i]));
  return list;
}

static PyObject *pv_event(const mv_membership_event *event) {
  typedef unsigned long long wide;
  return Py_BuildValue("{s:i,s:i,s:L,s:L,s:K,s:K,s:N}", "kind", event->kind, "role", event->role, "rank", (long long)event->rank,
                       "part", (long long)event->part, "epoch", (wide)event->epoch, "dropped", (wide)event->dropped,
                       "reason", pv_str(event->reason));
}

static PyObject *pv_info(const mv_table_info *info) {
  typedef unsigned long long wide;
  return Py_BuildValue("{s:N,s:i,s:i,s:K,s:K,s:I,s:I,s:K,s:K,s:K,s:s,s:L,s:K,s:K,s:K,s:K,s:K}",
                       "name", pv_str(info->name), "kind", info->kind, "dtype", info->dtype,
                       "rows", (wide)info->rows, "cols", (wide)info->cols,
                       "flags", info->flags, "servers", info->servers, "bytes", (wide)info->bytes,
                       "adds", (wide)info->adds, "gets", (wide)info->gets, "updater", info->updater,
                       "staleness", (long long)info->staleness, "clock", (wide)info->clock,
                       "stored", (wide)info->stored, "memory_bytes", (wide)info->memory_bytes, "state_bytes", (wide)info->state_bytes,
                       "updates", (wide)info->updates);
}

#endif
