/* Key-value stores, for every language. What C passes as structs arrives as one argument:
 *   kv_keys     a number or a name, or a list of them; Perl's are always names, for Perl does not tell 3 from "3"
 *   kv_values   a tensor, or a list of them, or a list of lists: several devices' tensors under one key
 * A tensor is a handle, or the language's object with one. */
%ignore kv_keys;
%ignore kv_values;

%{
#define PV_AGAIN_kv_type(...) kv_type(arg1, __VA_ARGS__)
%}

MV_RESUMES(kv_init)
MV_RESUMES(kv_broadcast)
MV_RESUMES_FOR(kv_push, arg4->timeout_ms)
MV_RESUMES_FOR(kv_pull, arg4->timeout_ms)
MV_WAITS(kv_pushpull)
MV_WAITS(kv_set_optimizer)
MV_RESUMES_FOR(kv_barrier, arg2->timeout_ms)
MV_WAITS(kv_leave)
MV_WAITS(kv_free)

#if defined(SWIGPYTHON)
%{
#include "python_kvstore.h"
%}
%typemap(in) const kv_keys * (kv_keys value = KV_KEYS_INIT, PyObject *items = NULL) {
  if (!pv_keys($input, "$symname", &value, &items)) SWIG_fail;
  $1 = &value;
}
%typemap(freearg) const kv_keys * {
  PyMem_Free((void *)value$argnum.numbers);
  PyMem_Free((void *)value$argnum.names);
  Py_XDECREF(items$argnum);
}
%typemap(in) const kv_values * (kv_values value = KV_VALUES_INIT, PyObject *items = NULL) {
  if (!pv_tensors($input, "$symname", $argnum, arg2->count, &value, &items)) SWIG_fail;
  $1 = $input == Py_None ? NULL : &value;
}
%typemap(freearg) const kv_values * {
  PyMem_Free((void *)value$argnum.tensors);
  PyMem_Free((void *)value$argnum.per_key);
  Py_XDECREF(items$argnum);
}
#endif

#if defined(SWIGPERL)
%{
#include "perl_kvstore.h"
%}
%typemap(in) const kv_keys * (kv_keys value = KV_KEYS_INIT) {
  if (!pv_keys($input, "$symname", &value)) SWIG_fail;
  $1 = &value;
}
%typemap(in) const kv_values * (kv_values value = KV_VALUES_INIT) {
  if (!pv_tensors($input, "$symname", $argnum, arg2->count, &value)) SWIG_fail;
  $1 = SvOK($input) ? &value : NULL;
}
#endif

#if defined(SWIGLUA)
%{
#include "lua_kvstore.h"
%}
%typemap(in) const kv_keys * (kv_keys value = KV_KEYS_INIT) {
  if (!pv_keys(L, $input, "$symname", &value)) SWIG_fail;
  $1 = &value;
}
%typemap(in) const kv_values * (kv_values value = KV_VALUES_INIT) {
  $1 = lua_isnil(L, $input) ? NULL : &value;
  if ($1 && !pv_tensors(L, $input, "$symname", arg2->count, &value)) SWIG_fail;
}
#endif

%include <polyverso/kvstore.h>
