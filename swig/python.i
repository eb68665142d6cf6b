/* Python: integers, buffers, mappings and exceptions. Helpers are in python_values.h. The interpreter lock is released
 * only in functions that may wait. */
%nothread;

%{
#include "python_values.h"
%}

%init %{
  if (!pv_start()) return PV_NOT_IMPORTED;
%}

/* --------------------------------------------------------------- status: an exception, or nothing */

%typemap(out) mv_status {
  if (result != MV_OK) {
    pv_raise(result);
    SWIG_fail;
  }
  $result = SWIG_Py_Void();
}

%define MV_WAITS(function)
%thread function;
%enddef

%define MV_RESUMES(function)
%thread function;
%exception function {
  do {
    $action
  } while (result == MV_EINTR && PyErr_CheckSignals() == 0);
}
%enddef

%define MV_SCANS(function, capacity, found)
MV_RESUMES(function)
%enddef

%define MV_RESUMES_FOR(function, timeout)
%thread function;
%exception function {
  const int64_t whole = timeout, started = pv_clock_ms();
  do {
    $action
  } while (result == MV_EINTR && PyErr_CheckSignals() == 0 && pv_shorten(&timeout, whole, started));
}
%enddef

%define MV_ENDS(function)
%thread function;
%exception function {
  do {
    $action
  } while (result == MV_EINTR && PyErr_CheckSignals() == 0);
  if (result == MV_OK) pv_settle_all();
}
%enddef

%define MV_RELEASES(function)
%thread function;
%exception function {
  $action
  if (result != MV_OK) pv_raise(result);
  pv_settle(arg1);
  if (result != MV_OK) SWIG_fail;
}
%enddef

%define MV_DROPS(function)
%exception function {
  $action
  if (result == MV_EPENDING) result = pv_drop(arg1);
  if (result != MV_OK) pv_raise(result);
  pv_settle(arg1);
  pv_sweep();
  if (result != MV_OK) SWIG_fail;
}
%enddef

%define MV_RELEASES_AFTER(function, timeout)
%thread function;
%exception function {
  const int64_t whole = timeout, started = pv_clock_ms();
  do {
    $action
  } while (result == MV_EINTR && PyErr_CheckSignals() == 0 && pv_shorten(&timeout, whole, started));
  if (result != MV_OK) pv_raise(result);
  pv_settle(arg1);
  if (result != MV_OK) SWIG_fail;
}
%enddef

%define MV_CALLS(function, options)
%thread function;
%exception function {
  $action
  if (result == MV_EINTR) result = pv_resume(options);
}
%enddef

%define MV_READS(function, options, at)
%thread function;
%exception function {
  $action
  if (result == MV_EINTR) result = pv_resume(options);
  if (result == MV_OK && (options->flags & MV_ASYNC) && !pv_hold(*options->request, swig_obj[at])) SWIG_fail;
}
%enddef

/* --------------------------------------------------------------- numbers */

%typemap(in) int64_t {
  if (!pv_integer($input, "$symname", $argnum, "$1_type", &$1)) SWIG_fail;
}
%typemap(in) int32_t {
  if (!pv_integer32($input, "$symname", $argnum, "$1_type", &$1)) SWIG_fail;
}
%typemap(in) uint64_t {
  if (!pv_count($input, "$symname", $argnum, "$1_name", &$1)) SWIG_fail;
}
%typemap(in, numinputs = 0) int64_t * (int64_t value = 0), int32_t * (int32_t value = 0),
                            uint64_t *found (uint64_t value = 0) {
  $1 = &value;
}
%typemap(argout) int64_t *, int32_t *, uint64_t *found {
  $result = pv_append($result, PyLong_FromLongLong((int64_t)*$1));
}

/* --------------------------------------------------------------- text */

%typemap(in) const char * {
  if (!pv_text($input, "$symname", (const char **)&$1)) SWIG_fail;
}
%typemap(freearg) const char * ""
%typemap(in) const char *path (PyObject *held = NULL) {
  if (!pv_path($input, "$symname", &held, (const char **)&$1)) SWIG_fail;
}
%typemap(freearg) const char *path { Py_XDECREF(held$argnum); }

/* --------------------------------------------------------------- buffers */

%typemap(in) (const void *data, uint64_t count, mv_dtype dtype) (Py_buffer view, int lent = 0) {
  if (!pv_lend($input, "$symname", 0, &view, &lent, &$2, &$3)) SWIG_fail;
  $1 = lent ? view.buf : NULL;
}
%typemap(in) (void *data, uint64_t count, mv_dtype dtype) (Py_buffer view, int lent = 0) {
  if (!pv_lend($input, "$symname", PyBUF_WRITABLE, &view, &lent, &$2, &$3)) SWIG_fail;
  $1 = lent ? view.buf : NULL;
}
%typemap(freearg) (const void *data, uint64_t count, mv_dtype dtype), (void *data, uint64_t count, mv_dtype dtype) {
  if (lent$argnum) PyBuffer_Release(&view$argnum);
}

%typemap(in) (const int64_t *rows, uint64_t row_count) (Py_buffer view, int lent = 0) {
  if (!pv_lend_rows($input, "$symname", 0, &view, &lent, &$2)) SWIG_fail;
  $1 = lent ? view.buf : NULL;
}
%typemap(in) (int64_t *rows, uint64_t capacity) (Py_buffer view, int lent = 0) {
  if (!pv_lend_rows($input, "$symname", PyBUF_WRITABLE, &view, &lent, &$2)) SWIG_fail;
  $1 = lent ? view.buf : NULL;
}
%typemap(argout) (const int64_t *rows, uint64_t row_count), (int64_t *rows, uint64_t capacity) ""
%typemap(freearg) (const int64_t *rows, uint64_t row_count), (int64_t *rows, uint64_t capacity) {
  if (lent$argnum) PyBuffer_Release(&view$argnum);
}

/* --------------------------------------------------------------- options, as mappings */

%typemap(arginit) const mv_call_options * {
  value$argnum = pv_call_defaults;
  value$argnum.request = &request$argnum;
  $1 = &value$argnum;
}
%typemap(default) const mv_call_options * ""
%typemap(in) const mv_call_options * (mv_call_options value, mv_request request = 0, PyObject *items = NULL) {
  if (!pv_call_options($input, "$symname", &value, &items)) SWIG_fail;
}
%typemap(argout) const mv_call_options * {
  if ($1->flags & MV_ASYNC) $result = pv_append($result, PyLong_FromLongLong(request$argnum));
}
%typemap(default) const mv_init_options * { $1 = NULL; }
%typemap(in) const mv_init_options * (mv_init_options value = MV_INIT_OPTIONS_INIT, PyObject *items = NULL) {
  if (PyUnicode_Check($input)) {
    if (!pv_text($input, "$symname", &value.text)) SWIG_fail;
  } else if (!pv_fields($input, "$symname", pv_init_fields, &value, &items)) {
    SWIG_fail;
  }
  if ($input != Py_None) $1 = &value;
}
%typemap(in) const mv_table_spec * (mv_table_spec value = MV_TABLE_SPEC_INIT, PyObject *items = NULL) {
  if (!pv_fields($input, "$symname", pv_spec_fields, &value, &items)) SWIG_fail;
  $1 = $input == Py_None ? NULL : &value;
}
%typemap(freearg) const mv_call_options *, const mv_init_options *, const mv_table_spec * {
  Py_XDECREF(items$argnum);
}

/* --------------------------------------------------------------- results of several values */

%typemap(in) (int *argc, char **argv) (int count = 0) {
  if (!($2 = pv_arguments($input, "$symname", &count))) SWIG_fail;
  $1 = &count;
}
%typemap(argout) (int *argc, char **argv) {
  $result = pv_append($result, pv_argument_list(*$1, $2));
}
%typemap(freearg) (int *argc, char **argv) { PyMem_Free($2); }

%typemap(in) (mv_request *finished, uint64_t capacity, uint64_t *count) (uint64_t count = 0) {
  if (!pv_handles($input, "$symname", $argnum, &$1, &$2)) SWIG_fail;
  $3 = &count;
}
%typemap(argout) (mv_request *finished, uint64_t capacity, uint64_t *count) {
  $result = pv_append($result, pv_handle_list($1, *$3));
}
%typemap(freearg) (mv_request *finished, uint64_t capacity, uint64_t *count) { PyMem_Free($1); }

%typemap(in, numinputs = 0) mv_membership_event *event (mv_membership_event value = MV_MEMBERSHIP_EVENT_INIT) { $1 = &value; }
%typemap(argout) mv_membership_event *event { $result = pv_append($result, pv_event($1)); }
%typemap(in, numinputs = 0) mv_table_info *info (mv_table_info value = MV_TABLE_INFO_INIT) { $1 = &value; }
%typemap(argout) mv_table_info *info { $result = pv_append($result, pv_info($1)); }

%typemap(in, numinputs = 0) (char *text, uint64_t capacity, uint64_t *length) (char first[1024], uint64_t length = 0) {
  $1 = first;
  $2 = sizeof first;
  $3 = &length;
}
/* Repeats the call with more room as long as the text is cut: it may have grown meanwhile. */
%typemap(argout) (char *text, uint64_t capacity, uint64_t *length) {
  PyObject *text = NULL;
  char *more = NULL;
  while (result == MV_OK && *$3 >= $2) {
    $2 = *$3 + 1;
    PyMem_Free(more);
    if (!(more = (char *)PyMem_Malloc($2))) break;
    Py_BEGIN_ALLOW_THREADS
    result = PV_AGAIN_$symname(more, $2, $3);
    Py_END_ALLOW_THREADS
    if (result == MV_EINTR && PyErr_CheckSignals() == 0) result = MV_OK, $2 = *$3;
  }
  if (result != MV_OK)
    pv_raise(result);
  else
    text = *$3 < $2 ? pv_str_of(more ? more : $1, *$3) : PyErr_NoMemory();
  PyMem_Free(more);
  if (!text) SWIG_fail;
  $result = pv_append($result, text);
}
