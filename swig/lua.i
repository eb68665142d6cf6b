/* Lua 5.1, LuaJIT and 5.4: integers, tables of numbers, FFI memory and error values. Helpers are in lua_values.h.
 * Temporary memory is a userdata that replaces its argument on the stack: a Lua error may longjmp past any C
 * cleanup. */
%{
#include "halves.h"
#include "lua_values.h"

#include "lua_memory.h"

/* An argument of a wrong type raises an error value, like every other error, instead of SWIG's text. */
#undef SWIG_fail_arg
#define SWIG_fail_arg(function, argument, type)              \
  do {                                                       \
    pv_refuse_argument(L, function, argument, type);         \
    SWIG_fail;                                               \
  } while (0)
%}

%wrapper %{
int luaopen_capi(lua_State *L);

/* The entry point for require("polyverso.capi"): SWIG's module, without the globals that SWIG sets. */
SWIGEXPORT int luaopen_polyverso_capi(lua_State *L) {
  static const char *const globals[] = {"capi", "swig_type", "swig_equals"};
  enum { kGlobals = sizeof globals / sizeof *globals };
  lua_settop(L, 0);
  for (int i = 0; i < kGlobals; ++i) lua_getglobal(L, globals[i]);
  luaopen_capi(L);
  pv_find_catchers(L);
  pv_extend_errors(L);
  lua_insert(L, 1);
  lua_settop(L, kGlobals + 1);
  for (int i = kGlobals; i-- > 0;) lua_setglobal(L, globals[i]);
  return 1;
}
%}

/* For the Lua modules: raise(status, text) throws the error value that a C function would. */
%native(raise) int pv_raise_lua(lua_State *L);
%native(raise_again) int pv_raise_again(lua_State *L);
%native(last_error) int pv_last_raised(lua_State *L);

/* --------------------------------------------------------------- status: an error value, or nothing */

%typemap(out) mv_status {
  if (result != MV_OK) {
    pv_raise(L, result);
    SWIG_fail;
  }
}

/* The interpreter handles signals itself, after a call has returned to it: MV_EINTR is an error like any other. */
%define MV_WAITS(function)
%enddef

%define MV_RESUMES(function)
%enddef

%define MV_SCANS(function, capacity, found)
%exception function {
  $action
  if (result == MV_OK && !pv_scanned(L, "$symname", 3, 4, capacity, *found)) SWIG_fail;
}
%enddef

%define MV_RESUMES_FOR(function, timeout)
%enddef

%define MV_ENDS(function)
%exception function {
  $action
  if (result == MV_OK) pv_settle_all(L);
}
%enddef

%define MV_RELEASES(function)
%exception function {
  $action
  if (result != MV_OK) pv_raise(L, result);
  if (!pv_settle(L, "$symname", arg1, result) || result != MV_OK) SWIG_fail;
}
%enddef

%define MV_DROPS(function)
%exception function {
  $action
  if (result == MV_EPENDING) result = pv_drop(L, arg1);
  if (result != MV_OK) {
    pv_raise(L, result);
    SWIG_fail;
  }
  pv_forget(L, arg1);
  pv_sweep(L);
}
%enddef

%define MV_RELEASES_AFTER(function, timeout)
MV_RELEASES(function)
%enddef

%define MV_CALLS(function, options)
%exception function {
  $action
  if (result == MV_EINTR) {
    pv_withdraw(L, options);
    SWIG_fail;
  }
}
%enddef

%define MV_READS(function, options, at)
%exception function {
  $action
  if (result == MV_EINTR) {
    pv_withdraw(L, options);
    SWIG_fail;
  }
  if (result == MV_OK) {
    if (options->flags & MV_ASYNC)
      pv_hold(L, *options->request, at + 1);
    else if (!pv_written(L, at + 1, "$symname"))
      SWIG_fail;
  }
}
%enddef

/* --------------------------------------------------------------- numbers */

%typemap(in) int64_t {
  if (!pv_integer(L, $input, "$symname", "$1_type", &$1)) SWIG_fail;
}
%typemap(in) int32_t {
  if (!pv_integer32(L, $input, "$symname", "$1_type", &$1)) SWIG_fail;
}
%typemap(out) int32_t {
  pv_push_integer(L, $1);
  SWIG_arg++;
}
%typemap(in) uint64_t {
  if (!pv_count(L, $input, "$symname", "$1_name", &$1)) SWIG_fail;
}
%typemap(in, numinputs = 0) int64_t * (int64_t value = 0), int32_t * (int32_t value = 0),
                            uint64_t *found (uint64_t value = 0) {
  $1 = &value;
}
%typemap(argout) int64_t *, int32_t *, uint64_t *found {
  if (!pv_push_exact(L, "$symname", (int64_t)*$1)) SWIG_fail;
  SWIG_arg++;
}

/* --------------------------------------------------------------- text */

%typemap(in, checkfn = "SWIG_lua_isnilstring") const char * {
  if (!pv_text(L, $input, "$symname", (const char **)&$1)) SWIG_fail;
}

/* --------------------------------------------------------------- buffers */

%typemap(in) (const void *data, uint64_t count, mv_dtype dtype) {
  void *memory = NULL;
  if (!pv_lend(L, $input, "$symname", arg1, 0, &memory, &$2, &$3)) SWIG_fail;
  $1 = memory;
}
%typemap(in) (void *data, uint64_t count, mv_dtype dtype) {
  if (!pv_lend(L, $input, "$symname", arg1, 1, &$1, &$2, &$3)) SWIG_fail;
}
%typemap(in) (const int64_t *rows, uint64_t row_count) {
  if (!pv_lend_rows(L, $input, "$symname", 0, &$1, &$2)) SWIG_fail;
}
%typemap(in) (int64_t *rows, uint64_t capacity) {
  if (!pv_lend_rows(L, $input, "$symname", 1, &$1, &$2)) SWIG_fail;
}
%typemap(argout) (const int64_t *rows, uint64_t row_count), (int64_t *rows, uint64_t capacity) ""

/* --------------------------------------------------------------- options, as tables */

%typemap(arginit) const mv_call_options * {
  value$argnum = pv_call_defaults;
  value$argnum.request = &request$argnum;
  $1 = &value$argnum;
}
%typemap(default) const mv_call_options * ""
%typemap(in) const mv_call_options * (mv_call_options value, mv_request request = 0) {
  if (!pv_call_options(L, $input, "$symname", &value)) SWIG_fail;
}
%typemap(argout) const mv_call_options * {
  if ($1->flags & MV_ASYNC) {
    pv_push_integer(L, request$argnum);
    SWIG_arg++;
  }
}
%typemap(default) const mv_init_options * { $1 = NULL; }
%typemap(in) const mv_init_options * (mv_init_options value = MV_INIT_OPTIONS_INIT) {
  if (lua_type(L, $input) == LUA_TSTRING)
    value.text = lua_tostring(L, $input);
  else if (!pv_fields(L, $input, "$symname", pv_init_fields, &value))
    SWIG_fail;
  if (!lua_isnil(L, $input)) $1 = &value;
}
%typemap(in) const mv_table_spec * (mv_table_spec value = MV_TABLE_SPEC_INIT) {
  if (!pv_fields(L, $input, "$symname", pv_spec_fields, &value)) SWIG_fail;
  $1 = lua_isnil(L, $input) ? NULL : &value;
}

/* --------------------------------------------------------------- results of several values, as tables */

%typemap(in) (int *argc, char **argv) (int count = 0) {
  if (!($2 = pv_arguments(L, $input, "$symname", &count))) SWIG_fail;
  $1 = &count;
}
%typemap(argout) (int *argc, char **argv) {
  pv_push_arguments(L, *$1, $2);
  SWIG_arg++;
}

%typemap(in) (mv_request *finished, uint64_t capacity, uint64_t *count) (uint64_t count = 0) {
  if (!pv_handles(L, $input, "$symname", &$1, &$2)) SWIG_fail;
  $3 = &count;
}
%typemap(argout) (mv_request *finished, uint64_t capacity, uint64_t *count) {
  pv_push_handles(L, $1, *$3);
  SWIG_arg++;
}

%typemap(in, numinputs = 0) mv_membership_event *event (mv_membership_event value = MV_MEMBERSHIP_EVENT_INIT) { $1 = &value; }
%typemap(argout) mv_membership_event *event {
  pv_push_event(L, $1);
  SWIG_arg++;
}
%typemap(in, numinputs = 0) mv_table_info *info (mv_table_info value = MV_TABLE_INFO_INIT) { $1 = &value; }
%typemap(argout) mv_table_info *info {
  pv_push_info(L, $1);
  SWIG_arg++;
}

%typemap(in, numinputs = 0) (char *text, uint64_t capacity, uint64_t *length) (char first[1024], uint64_t length = 0) {
  $1 = first;
  $2 = sizeof first;
  $3 = &length;
}
/* Repeats the call with more room as long as the text is cut: it may have grown meanwhile. */
%typemap(argout) (char *text, uint64_t capacity, uint64_t *length) {
  while (*$3 >= $2) {
    $2 = *$3 + 1;
    $1 = (char *)lua_newuserdata(L, (size_t)$2);
    result = PV_AGAIN_$symname($1, $2, $3);
    if (result != MV_OK) {
      pv_raise(L, result);
      SWIG_fail;
    }
  }
  lua_pushlstring(L, $1, (size_t)*$3);
  SWIG_arg++;
}
