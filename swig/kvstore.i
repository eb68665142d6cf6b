/* Key-value stores, for every language. Structs of C are one argument each:
 *   kv_keys       a number or a name, or a list of them; in Perl always names, because Perl does not distinguish 3 from
 *                 "3"
 *   kv_values     a tensor, or a list of them, or a list of lists: several devices' tensors under one key; or a mapping
 *                 of "tensors" to these and "priority" to a number
 *   kv_values *states   the same for the states of one key
 *   (about, tensors, tensor_count)   results: a text and a list of handles
 *   (kv_updater, user), (kv_controller, user)   whether to set one: manually, the only way for the languages
 * A tensor is a handle, or the language's object with one. */
%ignore kv_keys;
%ignore kv_values;
%ignore KV_UPDATER_MANUAL;
%ignore KV_CONTROLLER_MANUAL;

%{
#define PV_AGAIN_kv_type(...) kv_type(arg1, __VA_ARGS__)
#define PV_AGAIN_kv_next_update(...) kv_next_update(arg1, arg2, arg3, __VA_ARGS__)
#define PV_AGAIN_kv_next_command(...) kv_next_command(arg1, 0, arg3, arg4, __VA_ARGS__)
%}

%typemap(in, numinputs = 0) (const char **about, const mv_tensor **tensors, uint64_t *tensor_count)
    (const char *about = NULL, const mv_tensor *tensors = NULL, uint64_t tensor_count = 0) {
  $1 = ($1_ltype)&about;
  $2 = ($2_ltype)&tensors;
  $3 = &tensor_count;
}

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
%typemap(in) const kv_values *states (kv_values value = KV_VALUES_INIT, PyObject *items = NULL) {
  if (!pv_tensors($input, "$symname", $argnum, 1, &value, &items)) SWIG_fail;
  $1 = $input == Py_None ? NULL : &value;
}
%typemap(freearg) const kv_values * {
  PyMem_Free((void *)value$argnum.tensors);
  PyMem_Free((void *)value$argnum.per_key);
  Py_XDECREF(items$argnum);
}
%typemap(in) (kv_updater updater, void *user), (kv_controller controller, void *user) {
  const int is_there = PyObject_IsTrue($input);
  if (is_there < 0) SWIG_fail;
  $1 = is_there ? ($1_ltype)1 : NULL;
  $2 = NULL;
}

%typemap(argout) (const char **about, const mv_tensor **tensors, uint64_t *tensor_count) {
  $result = pv_append($result, pv_str(*$1));
  $result = pv_append($result, pv_handle_list(*$2, *$3));
}

%define MV_PULLS(function, options, out)
%thread function;
%exception function {
  const int64_t whole = options->timeout_ms, started = pv_clock_ms();
  do {
    $action
    if (result == MV_EINTR) result = pv_resume(options);
  } while (result == MV_EINTR && !PyErr_Occurred() && PyErr_CheckSignals() == 0 &&
           pv_shorten(&options->timeout_ms, whole, started));
  if (result == MV_OK && (options->flags & MV_ASYNC) && !pv_hold_all(*options->request, items ## out)) SWIG_fail;
}
%enddef

%define MV_PUSHES_AND_PULLS(function, options, pushed, out)
%thread function;
%exception function {
  $action
  if (result == MV_EINTR) result = pv_resume(options);
  if (result == MV_OK && (options->flags & MV_ASYNC) && !pv_hold_all(*options->request, arg ## out ? items ## out : items ## pushed)) SWIG_fail;
}
%enddef
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
%typemap(in) const kv_values *states (kv_values value = KV_VALUES_INIT) {
  if (!pv_tensors($input, "$symname", $argnum, 1, &value)) SWIG_fail;
  $1 = SvOK($input) ? &value : NULL;
}
%typemap(in) (kv_updater updater, void *user), (kv_controller controller, void *user) {
  $1 = SvTRUE($input) ? ($1_ltype)1 : NULL;
  $2 = NULL;
}

%typemap(argout) (const char **about, const mv_tensor **tensors, uint64_t *tensor_count) {
  PV_PUSH(pv_str(*$1));
  PV_PUSH(pv_handle_list(*$2, *$3));
}

%define MV_PULLS(function, options, out)
%exception function {
  const int64_t whole = options->timeout_ms, started = pv_clock_ms();
  do {
    $action
    if (result == MV_EINTR) result = pv_resume(options);
  } while (result == MV_EINTR && pv_signals() && pv_shorten(&options->timeout_ms, whole, started));
  if (result == MV_OK && (options->flags & MV_ASYNC)) pv_hold(*options->request, sv_2mortal(pv_copied(ST(out - 1))));
}
%enddef

%define MV_PUSHES_AND_PULLS(function, options, pushed, out)
%exception function {
  $action
  if (result == MV_EINTR) result = pv_resume(options);
  if (result == MV_OK && (options->flags & MV_ASYNC)) pv_hold(*options->request, sv_2mortal(pv_copied(ST((arg ## out ? out : pushed) - 1))));
}
%enddef
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
%typemap(in) const kv_values *states (kv_values value = KV_VALUES_INIT) {
  $1 = lua_isnil(L, $input) ? NULL : &value;
  if ($1 && !pv_tensors(L, $input, "$symname", 1, &value)) SWIG_fail;
}
%typemap(in) (kv_updater updater, void *user), (kv_controller controller, void *user) {
  $1 = lua_toboolean(L, $input) ? ($1_ltype)1 : NULL;
  $2 = NULL;
}

%typemap(argout) (const char **about, const mv_tensor **tensors, uint64_t *tensor_count) {
  lua_pushstring(L, *$1);
  pv_push_handles(L, *$2, *$3);
  SWIG_arg += 2;
}

%define MV_PULLS(function, options, out)
%exception function {
  $action
  if (result == MV_EINTR) {
    pv_withdraw(L, options);
    SWIG_fail;
  }
  if (result == MV_OK && (options->flags & MV_ASYNC)) pv_hold_all(L, *options->request, out);
}
%enddef

%define MV_PUSHES_AND_PULLS(function, options, pushed, out)
%exception function {
  $action
  if (result == MV_EINTR) {
    pv_withdraw(L, options);
    SWIG_fail;
  }
  if (result == MV_OK && (options->flags & MV_ASYNC)) pv_hold_all(L, *options->request, arg ## out ? out : pushed);
}
%enddef
#endif

/* MV_PULLS(function, options, out) is MV_CALLS() for a function that writes into the tensors of its argument `out`,
 * counted from 1. It continues after a signal, whether or not the call has begun. MV_PUSHES_AND_PULLS() is for one
 * that pushes first, and pulls into the pushed tensors if there is no `out`. */
MV_RESUMES(kv_init)
MV_WAITS(kv_broadcast)
MV_RESUMES_FOR(kv_push, arg4->timeout_ms)
MV_PULLS(kv_pull, arg4, 3)
MV_PULLS(kv_row_sparse_pull, arg5, 3)
MV_PUSHES_AND_PULLS(kv_pushpull, arg5, 3, 4)
MV_RESUMES(kv_set_optimizer)
MV_RESUMES(kv_set_gradient_compression)
MV_RESUMES(kv_set_key_parameters)
MV_RESUMES(kv_save_optimizer_states)
MV_RESUMES(kv_load_optimizer_states)
MV_RESUMES_FOR(kv_barrier, arg2->timeout_ms)
MV_CALLS(kv_send_command, arg4)
MV_RESUMES_FOR(kv_next_command, arg2)
MV_RESUMES(kv_run_server)
MV_WAITS(kv_leave)
MV_WAITS(kv_free)

%include <polyverso/kvstore.h>
