/* Tensors, for every language. A tensor is a handle, or the language's object with one, which then lives as long as the
 * call. Several C parameters are one argument:
 *   (values, count, dtype)   as (data, count, dtype): a buffer with a dtype of its own
 *   (shape, dims), (index, dims)   a list of integers
 * mv_tensor_data() returns address, count and dtype; mv_tensor_describe() a mapping. Memory that is lent to
 * mv_tensor_view() is kept alive until the last tensor in it is freed. In addition to the functions of tensor.h,
 * each language has functions that turn a tensor's memory into its own arrays. */
%ignore mv_tensor_info;
%ignore mv_device_info;
%apply uint64_t *found { uint64_t *stream, uint64_t *address };

#if defined(SWIGPYTHON)
%{
#include "python_tensor.h"
%}
%init %{
  if (!pv_tensor_start(m)) return PV_NOT_IMPORTED;
%}
%native(tensor_dlpack) PyObject *pv_tensor_dlpack(PyObject *self, PyObject *arguments);
%native(tensor_from_dlpack) PyObject *pv_tensor_from_dlpack(PyObject *self, PyObject *arguments);
%native(tensor_views) PyObject *pv_tensor_views(PyObject *self, PyObject *arguments);

%typemap(in) mv_tensor {
  if (!pv_tensor_handle($input, "$symname", $argnum, &$1)) SWIG_fail;
}
%typemap(in) (const void *values, uint64_t count, mv_dtype dtype) (Py_buffer view, int lent = 0) {
  if (!pv_lend($input, "$symname", 0, &view, &lent, &$2, &$3)) SWIG_fail;
  $1 = lent ? view.buf : NULL;
}
%typemap(in) (void *values, uint64_t count, mv_dtype dtype) (Py_buffer view, int lent = 0) {
  if (!pv_lend($input, "$symname", PyBUF_WRITABLE, &view, &lent, &$2, &$3)) SWIG_fail;
  $1 = lent ? view.buf : NULL;
}
%typemap(freearg) (const void *values, uint64_t count, mv_dtype dtype),
                  (void *values, uint64_t count, mv_dtype dtype) {
  if (lent$argnum) PyBuffer_Release(&view$argnum);
}
%typemap(in) (const int64_t *shape, uint64_t dims) (int64_t lengths[MV_MAX_DIMS]),
             (const int64_t *index, uint64_t dims) (int64_t lengths[MV_MAX_DIMS]) {
  if (!pv_lengths($input, "$symname", $argnum, lengths, &$2)) SWIG_fail;
  $1 = lengths;
}
%typemap(argout) (const int64_t *shape, uint64_t dims), (const int64_t *index, uint64_t dims) ""
%typemap(in, numinputs = 0) double * (double value = 0) { $1 = &value; }
%typemap(argout) double * { $result = pv_append($result, PyFloat_FromDouble(*$1)); }
%typemap(in, numinputs = 0) mv_tensor_info *about (mv_tensor_info value = MV_TENSOR_INFO_INIT) { $1 = &value; }
%typemap(argout) mv_tensor_info *about { $result = pv_append($result, pv_tensor_info($1)); }
%typemap(in, numinputs = 0) mv_device_info *about (mv_device_info value = MV_DEVICE_INFO_INIT) { $1 = &value; }
%typemap(argout) mv_device_info *about { $result = pv_append($result, pv_device_info($1)); }
%typemap(in, numinputs = 0) (void **data, uint64_t *count, mv_dtype *dtype)
    (void *data = NULL, uint64_t count = 0, mv_dtype dtype = 0) {
  $1 = &data;
  $2 = &count;
  $3 = &dtype;
}
%typemap(argout) (void **data, uint64_t *count, mv_dtype *dtype) {
  typedef unsigned long long wide;
  PyObject *where = Py_BuildValue("(KKi)", (wide)(uintptr_t)*$1, (wide)*$2, (int)*$3);
  $result = pv_append($result, where);
}
%typemap(in, numinputs = 0) (char *picture, uint64_t capacity, uint64_t *length)
    (char first[1024], uint64_t length = 0) {
  $1 = first;
  $2 = sizeof first;
  $3 = &length;
}
%typemap(argout) (char *picture, uint64_t capacity, uint64_t *length) {
  PyObject *text = pv_tensor_text(arg1, $1, $2, *$3);
  if (!text) SWIG_fail;
  $result = pv_append($result, text);
}
%exception mv_tensor_view {
  $action
  if (result == MV_OK && !pv_tensor_keep(*arg6, swig_obj[0])) SWIG_fail;
}
%native(tensor_lend) PyObject *pv_tensor_lend(PyObject *self, PyObject *arguments);
%exception mv_tensor_free { result = pv_tensor_free(arg1); }
#endif

#if defined(SWIGPERL)
%{
#include "perl_tensor.h"
%}
%init %{
  newXS("Polyverso::CAPI::tensor_pdl", pv_tensor_pdl, __FILE__);
%}

%typemap(in) mv_tensor {
  if (!pv_tensor_handle($input, "$symname", $argnum, &$1)) SWIG_fail;
}
%typemap(in) (const void *values, uint64_t count, mv_dtype dtype) {
  void *memory = NULL;
  if (!pv_tensor_values($input, "$symname", 0, &memory, &$2, &$3)) SWIG_fail;
  $1 = memory;
}
%typemap(in) (void *values, uint64_t count, mv_dtype dtype) {
  if (!pv_tensor_values($input, "$symname", 1, &$1, &$2, &$3)) SWIG_fail;
}
%typemap(in) (const int64_t *shape, uint64_t dims) (int64_t lengths[MV_MAX_DIMS]),
             (const int64_t *index, uint64_t dims) (int64_t lengths[MV_MAX_DIMS]) {
  if (!pv_lengths($input, "$symname", $argnum, lengths, &$2)) SWIG_fail;
  $1 = lengths;
}
%typemap(argout) (const int64_t *shape, uint64_t dims), (const int64_t *index, uint64_t dims) ""
%typemap(in, numinputs = 0) double * (double value = 0) { $1 = &value; }
%typemap(argout) double * { PV_PUSH(newSVnv(*$1)); }
%typemap(in, numinputs = 0) mv_tensor_info *about (mv_tensor_info value = MV_TENSOR_INFO_INIT) { $1 = &value; }
%typemap(argout) mv_tensor_info *about { PV_PUSH(pv_tensor_info($1)); }
%typemap(in, numinputs = 0) mv_device_info *about (mv_device_info value = MV_DEVICE_INFO_INIT) { $1 = &value; }
%typemap(argout) mv_device_info *about { PV_PUSH(pv_device_info($1)); }
%typemap(in, numinputs = 0) (void **data, uint64_t *count, mv_dtype *dtype)
    (void *data = NULL, uint64_t count = 0, mv_dtype dtype = 0) {
  $1 = &data;
  $2 = &count;
  $3 = &dtype;
}
%typemap(argout) (void **data, uint64_t *count, mv_dtype *dtype) {
  PV_PUSH(newSVuv(PTR2UV(*$1)));
  PV_PUSH(newSVuv(*$2));
  PV_PUSH(newSViv(*$3));
}
%typemap(in, numinputs = 0) (char *picture, uint64_t capacity, uint64_t *length)
    (char first[1024], uint64_t length = 0) {
  $1 = first;
  $2 = sizeof first;
  $3 = &length;
}
%typemap(argout) (char *picture, uint64_t capacity, uint64_t *length) {
  SV *text = pv_tensor_text(arg1, $1, $2, *$3);
  if (!text) SWIG_fail;
  PV_PUSH(text);
}
%exception mv_tensor_view {
  $action
  if (result == MV_OK) pv_tensor_keep(*arg6, ST(0));
}
%exception mv_tensor_free { result = pv_tensor_free(arg1); }
#endif

#if defined(SWIGLUA)
%{
#include "lua_tensor.h"

#include "lua_strided_math.h"
%}
/* For the Lua modules: a value that frees the tensor when it is collected. */
%native(tensor_owner) int pv_tensor_owner(lua_State *L);
%native(tensor_lengths) int pv_tensor_lengths(lua_State *L);
%native(plain_rows) int pv_plain_rows(lua_State *L);
%native(crc32) int pv_crc32(lua_State *L);
/* For lua/torch: a table of functions. */
%native(strided) int pv_strided_module(lua_State *L);

%typemap(in) mv_tensor {
  if (!pv_tensor_handle(L, $input, "$symname", &$1)) SWIG_fail;
}
%typemap(in) (const void *values, uint64_t count, mv_dtype dtype) {
  void *memory = NULL;
  if (!pv_lend(L, $input, "$symname", 0, 0, &memory, &$2, &$3)) SWIG_fail;
  $1 = memory;
}
%typemap(in) (void *values, uint64_t count, mv_dtype dtype) {
  if (!pv_tensor_memory(L, $input, "$symname", &$1, &$2, &$3)) SWIG_fail;
}
%typemap(in) (const int64_t *shape, uint64_t dims) (int64_t lengths[MV_MAX_DIMS]),
             (const int64_t *index, uint64_t dims) (int64_t lengths[MV_MAX_DIMS]) {
  if (!pv_lengths(L, $input, "$symname", lengths, &$2)) SWIG_fail;
  $1 = lengths;
}
%typemap(argout) (const int64_t *shape, uint64_t dims), (const int64_t *index, uint64_t dims) ""
%typemap(in, numinputs = 0) double * (double value = 0) { $1 = &value; }
%typemap(argout) double * {
  lua_pushnumber(L, *$1);
  SWIG_arg++;
}
/* The integer nearest to the element: for floats less precise than the other result. */
%typemap(argout) int64_t *integer {
  pv_push_integer(L, *$1);
  SWIG_arg++;
}
%typemap(in, numinputs = 0) mv_tensor_info *about (mv_tensor_info value = MV_TENSOR_INFO_INIT) { $1 = &value; }
%typemap(argout) mv_tensor_info *about {
  pv_push_tensor_info(L, $1);
  SWIG_arg++;
}
%typemap(in, numinputs = 0) mv_device_info *about (mv_device_info value = MV_DEVICE_INFO_INIT) { $1 = &value; }
%typemap(argout) mv_device_info *about {
  pv_push_device_info(L, $1);
  SWIG_arg++;
}
%typemap(in, numinputs = 0) (void **data, uint64_t *count, mv_dtype *dtype)
    (void *data = NULL, uint64_t count = 0, mv_dtype dtype = 0) {
  $1 = &data;
  $2 = &count;
  $3 = &dtype;
}
%typemap(argout) (void **data, uint64_t *count, mv_dtype *dtype) {
  pv_push_integer(L, (int64_t)(intptr_t)*$1);
  pv_push_integer(L, (int64_t)*$2);
  pv_push_integer(L, *$3);
  SWIG_arg += 3;
}
%typemap(in, numinputs = 0) (char *picture, uint64_t capacity, uint64_t *length)
    (char first[1024], uint64_t length = 0) {
  $1 = first;
  $2 = sizeof first;
  $3 = &length;
}
%typemap(argout) (char *picture, uint64_t capacity, uint64_t *length) {
  if (!pv_push_tensor_text(L, arg1, $1, $2, *$3)) SWIG_fail;
  SWIG_arg++;
}
%exception mv_tensor_view {
  $action
  if (result == MV_OK) pv_tensor_keep(L, *arg6, 1);
}
%exception mv_tensor_free { result = pv_tensor_free(L, arg1); }
#endif

%include <polyverso/tensor.h>
