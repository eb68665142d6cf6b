/* Helpers of the Lua typemaps. On failure they return 0 or NULL with an error value on top of the stack, for
 * SWIG_fail to throw. `index` is always the position of an argument, never relative to the top. */
#ifndef POLYVERSO_SWIG_LUA_VALUES_H
#define POLYVERSO_SWIG_LUA_VALUES_H

#include <stdarg.h>

#define PV_CDATA 10 /* the type of LuaJIT's FFI values; plain Lua does not use this number */

static const mv_call_options pv_call_defaults = MV_CALL_OPTIONS_INIT;

/* Keys of Lua's registry. */
static const char pv_error_key, pv_raised_key, pv_catchers_key, pv_held_key, pv_dropped_key, pv_memory_key, pv_dtypes_key;

static void pv_registry(lua_State *L, const char *key) {
  lua_pushlightuserdata(L, (void *)key);
  lua_rawget(L, LUA_REGISTRYINDEX);
}

/* pv_registry() of a table, which the first call creates. */
static void pv_registry_table(lua_State *L, const char *key) {
  pv_registry(L, key);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushlightuserdata(L, (void *)key);
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

static void pv_push_integer(lua_State *L, int64_t value) {
#if LUA_VERSION_NUM >= 503
  lua_pushinteger(L, (lua_Integer)value);
#else
  lua_pushnumber(L, (lua_Number)value); /* handles, ranks and counts are below 2^53 */
#endif
}

static void pv_set_integer(lua_State *L, const char *key, int64_t value) {
  pv_push_integer(L, value);
  lua_setfield(L, -2, key);
}

#include "lua_errors.h"

/* ------------------------------------------------------------------ numbers */

/* Pushes a function of polyverso/memory.lua, which queries LuaJIT's FFI library for C. */
static void pv_push_memory(lua_State *L, const char *function) {
  pv_registry(L, &pv_memory_key);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "polyverso.memory");
    lua_call(L, 1, 1);
    lua_pushlightuserdata(L, (void *)&pv_memory_key);
    lua_pushvalue(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  lua_getfield(L, -1, function);
  lua_remove(L, -2);
}

/* Reads LuaJIT's int64_t or uint64_t. */
static int pv_is_cdata_integer(lua_State *L, int index, int64_t *value) {
  lua_pushvalue(L, index);
  pv_push_memory(L, "halves");
  lua_insert(L, -2);
  lua_call(L, 1, 2);
  const int is_integer = !lua_isnil(L, -1);
  if (is_integer) *value = (int64_t)lua_tonumber(L, -2) * (INT64_C(1) << 32) + (int64_t)lua_tonumber(L, -1);
  lua_pop(L, 2);
  return is_integer;
}

static int pv_is_integer(lua_State *L, int index, int64_t *value) {
  *value = 0;
  if (lua_type(L, index) == PV_CDATA) return pv_is_cdata_integer(L, index, value);
  if (lua_type(L, index) != LUA_TNUMBER) return 0;
#if LUA_VERSION_NUM >= 503
  int exact = 0;
  *value = lua_tointegerx(L, index, &exact);
  return exact;
#else
  lua_Number number = lua_tonumber(L, index);
  if (!(number >= -9007199254740992.0 && number <= 9007199254740992.0)) return 0;
  *value = (int64_t)number;
  return (lua_Number)*value == number;
#endif
}

/* Pushes the integer exactly: as a number if that is exact, else as LuaJIT's int64_t. 0, with an error value, if
 * neither is possible. */
static int pv_push_exact(lua_State *L, const char *function, int64_t value) {
#if LUA_VERSION_NUM < 503
  const int64_t most = INT64_C(1) << 53;
  if (value < -most || value > most) {
    lua_getglobal(L, "jit");
    const int has_ffi = !lua_isnil(L, -1);
    lua_pop(L, 1);
    if (!has_ffi)
      return pv_refuse(L, MV_EDTYPE, function,
                       "this Lua can't represent %" PRId64 " exactly: use Lua 5.4 or LuaJIT", value);
    pv_push_memory(L, "int64");
    lua_pushnumber(L, (lua_Number)(value >> 32));
    lua_pushnumber(L, (lua_Number)(value & UINT32_MAX));
    lua_call(L, 2, 1);
    return 1;
  }
#endif
  (void)function;
  pv_push_integer(L, value);
  return 1;
}

static int pv_integer(lua_State *L, int index, const char *function, const char *type, int64_t *value) {
  if (pv_is_integer(L, index, value)) return 1;
  return pv_refuse(L, MV_EINVAL, function, "argument %d (%s) must be an integer, not %s", index, type,
                   lua_type(L, index) == LUA_TNUMBER ? lua_tostring(L, index) : luaL_typename(L, index));
}

/* Refuses an argument that SWIG has checked: `type` is C's. */
static int pv_refuse_argument(lua_State *L, const char *function, int index, const char *type) {
  const char *needed = strstr(type, "char") ? "a string" : strstr(type, "int") ? "an integer" : "a number";
  return pv_refuse(L, MV_EINVAL, function, "argument %d must be %s, not %s", index, needed, luaL_typename(L, index));
}

static int pv_integer32(lua_State *L, int index, const char *function, const char *type, int32_t *value) {
  int64_t wide;
  if (!pv_integer(L, index, function, type, &wide)) return 0;
  *value = (int32_t)wide;
  return *value == wide || pv_refuse(L, MV_EINVAL, function, "argument %d (%s) does not fit 32 bits", index, type);
}

static int pv_count(lua_State *L, int index, const char *function, const char *name, uint64_t *value) {
  int64_t number;
  if (!pv_integer(L, index, function, name, &number)) return 0;
  *value = (uint64_t)number;
  return number >= 0 || pv_refuse(L, MV_EINVAL, function, "%s is %" PRId64 ", a count can't be negative", name, number);
}

/* ------------------------------------------------------------------ tables, and userdata that replace them */

static void pv_keep_table(lua_State *L, int numbers) {
#if LUA_VERSION_NUM >= 502
  lua_setuservalue(L, numbers);
#else
  lua_setfenv(L, numbers);
#endif
}

static void pv_kept_table(lua_State *L, int numbers) {
#if LUA_VERSION_NUM >= 502
  lua_getuservalue(L, numbers);
#else
  lua_getfenv(L, numbers);
#endif
}

static size_t pv_length(lua_State *L, int index) {
#if LUA_VERSION_NUM >= 502
  return lua_rawlen(L, index);
#else
  return lua_objlen(L, index);
#endif
}

/* ------------------------------------------------------------------ tables of options */

/* Text as an argument; nil is NULL. */
static int pv_text(lua_State *L, int index, const char *function, const char **text) {
  size_t length = 0;
  *text = lua_tolstring(L, index, &length);
  return *text == NULL || pv_is_c_text(*text, length) ||
         pv_refuse(L, MV_EINVAL, function, "\"%.100s\" contains a zero byte", *text);
}

/* Stores the value on top of the stack in its field. */
static int pv_field_set(lua_State *L, const pv_field *field, void *options, char *message) {
  int64_t number;
  switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN: return pv_field_number(options, field, lua_toboolean(L, -1), message);
    case LUA_TSTRING: {
      size_t length;
      const char *text = lua_tolstring(L, -1, &length);
      return pv_field_text(options, field, text, length, message);
    }
    default: break;
  }
  if (pv_is_integer(L, -1, &number)) return pv_field_number(options, field, number, message);
  if (lua_type(L, -1) == LUA_TNUMBER) return pv_field_real(options, field, lua_tonumber(L, -1), message);
  snprintf(message, PV_MESSAGE_SIZE, "option %s is neither a number nor text", field->key);
  return 0;
}

/* Sets the options' fields from a table; nil leaves them unchanged. Its strings are not copied: the table keeps them
 * alive. */
static int pv_fields(lua_State *L, int index, const char *function, const pv_field *fields, void *options) {
  char message[PV_MESSAGE_SIZE];
  if (lua_isnoneornil(L, index)) return 1;
  if (lua_type(L, index) != LUA_TTABLE)
    return pv_refuse(L, MV_EINVAL, function, "options must be a table of fields, not a %s", luaL_typename(L, index));
  lua_pushnil(L);
  while (lua_next(L, index)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "(not a string)";
    const pv_field *field = pv_field_find(fields, key, message);
    if (!field || !pv_field_set(L, field, options, message)) return pv_refuse(L, MV_EINVAL, function, "%s", message);
    lua_pop(L, 1);
  }
  return 1;
}

static int pv_call_options(lua_State *L, int index, const char *function, mv_call_options *options) {
  int64_t flags;
  if (lua_isnoneornil(L, index)) return 1;
  if (lua_type(L, index) == LUA_TTABLE) return pv_fields(L, index, function, pv_call_fields, options);
  if (!pv_is_integer(L, index, &flags) || flags != (int64_t)(uint32_t)flags)
    return pv_refuse(L, MV_EINVAL, function, "flags must be a number or a table");
  options->flags = (uint32_t)flags;
  return 1;
}

/* ------------------------------------------------------------------ results of several values */

/* argv from a table of strings, as a userdata that replaces the table. */
static char **pv_arguments(lua_State *L, int index, const char *function, int *count) {
  if (lua_type(L, index) != LUA_TTABLE) {
    pv_refuse(L, MV_EINVAL, function, "a table of strings is needed, not a %s", luaL_typename(L, index));
    return NULL;
  }
  *count = (int)pv_length(L, index);
  char **argv = (char **)lua_newuserdata(L, ((size_t)*count + 1) * sizeof *argv);
  for (int i = 0; i < *count; ++i) {
    lua_rawgeti(L, index, i + 1);
    if (lua_type(L, -1) != LUA_TSTRING) {
      pv_refuse(L, MV_EINVAL, function, "element %d is a %s, not a string", i + 1, luaL_typename(L, -1));
      return NULL;
    }
    argv[i] = (char *)lua_tostring(L, -1); /* not copied: the table keeps it alive */
    lua_pop(L, 1);
  }
  argv[*count] = NULL;
  lua_pushvalue(L, index);
  pv_keep_table(L, lua_gettop(L) - 1);
  lua_replace(L, index);
  return argv;
}

static void pv_push_arguments(lua_State *L, int count, char **argv) {
  lua_createtable(L, count, 0);
  for (int i = 0; i < count; ++i) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

/* Replaces the argument by room for as many handles as the caller requests at once. */
static int pv_handles(lua_State *L, int index, const char *function, mv_request **handles, uint64_t *capacity) {
  int64_t wanted;
  *capacity = 0;
  if (!pv_integer(L, index, function, "capacity", &wanted)) return 0;
  if (wanted < 0 || wanted > 1 << 20) return pv_refuse(L, MV_EINVAL, function, "capacity must be 0 .. 1048576");
  *capacity = (uint64_t)wanted;
  *handles = (mv_request *)lua_newuserdata(L, (size_t)(wanted + 1) * sizeof(mv_request));
  lua_replace(L, index);
  return 1;
}

static void pv_push_handles(lua_State *L, const mv_request *handles, uint64_t count) {
  lua_createtable(L, (int)count, 0);
  for (uint64_t i = 0; i < count; ++i) {
    pv_push_integer(L, handles[i]);
    lua_rawseti(L, -2, (int)(i + 1));
  }
}

static void pv_push_event(lua_State *L, const mv_membership_event *event) {
  lua_createtable(L, 0, 7);
  pv_set_integer(L, "kind", event->kind);
  pv_set_integer(L, "role", event->role);
  pv_set_integer(L, "rank", event->rank);
  pv_set_integer(L, "part", event->part);
  pv_set_integer(L, "epoch", (int64_t)event->epoch);
  pv_set_integer(L, "dropped", (int64_t)event->dropped);
  lua_pushstring(L, event->reason);
  lua_setfield(L, -2, "reason");
}

static void pv_push_info(lua_State *L, const mv_table_info *info) {
  lua_createtable(L, 0, 16);
  lua_pushstring(L, info->name);
  lua_setfield(L, -2, "name");
  pv_set_integer(L, "kind", info->kind);
  pv_set_integer(L, "dtype", info->dtype);
  pv_set_integer(L, "rows", (int64_t)info->rows);
  pv_set_integer(L, "cols", (int64_t)info->cols);
  pv_set_integer(L, "flags", info->flags);
  pv_set_integer(L, "servers", info->servers);
  pv_set_integer(L, "bytes", (int64_t)info->bytes);
  pv_set_integer(L, "adds", (int64_t)info->adds);
  pv_set_integer(L, "gets", (int64_t)info->gets);
  lua_pushstring(L, info->updater);
  lua_setfield(L, -2, "updater");
  pv_set_integer(L, "staleness", info->staleness);
  pv_set_integer(L, "clock", (int64_t)info->clock);
  pv_set_integer(L, "stored", (int64_t)info->stored);
  pv_set_integer(L, "memory_bytes", (int64_t)info->memory_bytes);
  pv_set_integer(L, "state_bytes", (int64_t)info->state_bytes);
  pv_set_integer(L, "updates", (int64_t)info->updates);
}

#endif
