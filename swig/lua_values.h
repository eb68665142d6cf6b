/* What the Lua typemaps call. On failure they return 0 or NULL with an error value on top of the stack, for SWIG_fail
 * to throw. `index` is always the position of an argument, never relative to the top. */
#ifndef POLYVERSO_SWIG_LUA_VALUES_H
#define POLYVERSO_SWIG_LUA_VALUES_H

#include <stdarg.h>

#define PV_CDATA 10 /* LuaJIT's type of FFI values; Lua itself has none of that number */

static const mv_call_options pv_call_defaults = MV_CALL_OPTIONS_INIT;

/* Keys of Lua's registry. */
static const char pv_error_key, pv_held_key, pv_memory_key;

static void pv_registry(lua_State *L, const char *key) {
  lua_pushlightuserdata(L, (void *)key);
  lua_rawget(L, LUA_REGISTRYINDEX);
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

/* ------------------------------------------------------------------ error values */

/* error.where .. error.name .. error.text */
static int pv_error_text(lua_State *L) {
  lua_getfield(L, 1, "where");
  lua_getfield(L, 1, "name");
  lua_pushliteral(L, ": ");
  lua_getfield(L, 1, "text");
  lua_concat(L, 4);
  return 1;
}

/* Whether a chunk is one of this binding's own, whose lines tell the user nothing. */
static int pv_is_own(const char *source) {
  static const char *const own[] = {"/polyverso/init.lua", "/polyverso/node.lua", "/polyverso/table.lua",
                                    "/polyverso/request.lua", "/polyverso/values.lua", "/multiverso/init.lua"};
  size_t length = strlen(source);
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i)
    if (length >= strlen(own[i]) && strcmp(source + length - strlen(own[i]), own[i]) == 0) return 1;
  return 0;
}

/* Pushes "file:line: " of the innermost line that is the user's. */
static void pv_push_where(lua_State *L) {
  lua_Debug frame;
  for (int level = 1; lua_getstack(L, level, &frame); ++level) {
    lua_getinfo(L, "Sl", &frame);
    if (frame.currentline > 0 && !pv_is_own(frame.source)) {
      lua_pushfstring(L, "%s:%d: ", frame.short_src, frame.currentline);
      return;
    }
  }
  lua_pushliteral(L, "");
}

/* Pushes an error value: {code, name, family, text, where} with a tostring(). */
static void pv_raise_text(lua_State *L, mv_status status, const char *text) {
  lua_createtable(L, 0, 5);
  pv_set_integer(L, "code", status);
  lua_pushstring(L, mv_status_name(status));
  lua_setfield(L, -2, "name");
  lua_pushstring(L, mv_status_family(status));
  lua_setfield(L, -2, "family");
  lua_pushstring(L, *text ? text : mv_status_text(status));
  lua_setfield(L, -2, "text");
  pv_push_where(L);
  lua_setfield(L, -2, "where");
  pv_registry(L, &pv_error_key);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, pv_error_text);
    lua_setfield(L, -2, "__tostring");
    lua_pushlightuserdata(L, (void *)&pv_error_key);
    lua_pushvalue(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  lua_setmetatable(L, -2);
}

static void pv_raise(lua_State *L, mv_status status) {
  lua_pushstring(L, mv_last_error()); /* a copy: what follows makes calls of its own */
  pv_raise_text(L, status, lua_tostring(L, -1));
}

static int pv_refuse(lua_State *L, mv_status status, const char *function, const char *format, ...) {
  char text[PV_MESSAGE_SIZE];
  int used = snprintf(text, sizeof text, "%s: ", function);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + used, sizeof text - (size_t)used, format, arguments);
  va_end(arguments);
  pv_raise_text(L, status, text);
  return 0;
}

static int pv_raise_lua(lua_State *L) {
  pv_raise_text(L, (mv_status)luaL_checknumber(L, 1), luaL_optstring(L, 2, ""));
  return lua_error(L);
}

/* A signal interrupted a blocking call, which goes on under a handle: its buffers end with this call, so it does. */
static void pv_withdraw(lua_State *L, const mv_call_options *options) {
  pv_raise(L, MV_EINTR);
  if (*options->request != 0) mv_request_cancel(*options->request);
}

/* ------------------------------------------------------------------ numbers */

static int pv_is_integer(lua_State *L, int index, int64_t *value) {
  *value = 0;
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

static int pv_integer(lua_State *L, int index, const char *function, const char *type, int64_t *value) {
  if (pv_is_integer(L, index, value)) return 1;
  return pv_refuse(L, MV_EINVAL, function, "argument %d (%s) must be an integer, not %s", index, type,
                   lua_type(L, index) == LUA_TNUMBER ? lua_tostring(L, index) : luaL_typename(L, index));
}

static int pv_integer32(lua_State *L, int index, const char *function, const char *type, int32_t *value) {
  int64_t wide;
  if (!pv_integer(L, index, function, type, &wide)) return 0;
  *value = (int32_t)wide;
  return *value == wide || pv_refuse(L, MV_EINVAL, function, "argument %d (%s) does not fit 32 bits", index, type);
}

/* ------------------------------------------------------------------ tables of numbers */

/* A Lua table's numbers as C sees them. It takes the table's place among the arguments and keeps the table alive. */
typedef struct {
  uint64_t count;
  mv_dtype dtype;
  double values[]; /* or float or int64_t, as dtype says */
} pv_numbers;

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

/* table.n, or else #table. */
static int64_t pv_table_count(lua_State *L, int index) {
  int64_t count;
  lua_getfield(L, index, "n");
  if (!pv_is_integer(L, -1, &count) || count < 0) count = (int64_t)pv_length(L, index);
  lua_pop(L, 1);
  return count;
}

/* Numbers have no dtype of their own in Lua: table.dtype says it, else they take that of the mv_table of the call. */
static mv_dtype pv_table_dtype(lua_State *L, int index, const char *function, int64_t table) {
  int64_t dtype;
  lua_getfield(L, index, "dtype");
  int known = pv_is_integer(L, -1, &dtype);
  lua_pop(L, 1);
  if (known) return dtype == MV_F64 ? MV_F64 : MV_F32;
  mv_table_info info = MV_TABLE_INFO_INIT;
  if (strncmp(function, "mv_table_create", 15) == 0 || mv_table_describe(table, &info) != MV_OK) return MV_F32;
  return info.dtype;
}

/* Puts memory for `count` numbers into the table's place at `index`, the table behind it. */
static pv_numbers *pv_replace_table(lua_State *L, int index, int64_t count, mv_dtype dtype) {
  size_t size = dtype == MV_F32 ? sizeof(float) : sizeof(double);
  pv_numbers *numbers = (pv_numbers *)lua_newuserdata(L, sizeof(pv_numbers) + (size_t)count * size + sizeof(double));
  numbers->count = (uint64_t)count;
  numbers->dtype = dtype;
  lua_pushvalue(L, index);
  pv_keep_table(L, lua_gettop(L) - 1);
  lua_replace(L, index);
  return numbers;
}

/* table[1 .. count] -> numbers. The table is on top of the stack. */
static int pv_read_table(lua_State *L, pv_numbers *numbers, const char *function, const char *what) {
  for (uint64_t i = 0; i < numbers->count; ++i) {
    int64_t id = 0;
    lua_rawgeti(L, -1, (int)(i + 1));
    if (numbers->dtype == MV_I64 ? !pv_is_integer(L, -1, &id) : lua_type(L, -1) != LUA_TNUMBER)
      return pv_refuse(L, MV_EDTYPE, function, "%s[%" PRIu64 "] is a %s, not %s", what, i + 1, luaL_typename(L, -1),
                       numbers->dtype == MV_I64 ? "an integer" : "a number");
    switch (numbers->dtype) {
      case MV_F32: ((float *)numbers->values)[i] = (float)lua_tonumber(L, -1); break;
      case MV_F64: numbers->values[i] = lua_tonumber(L, -1); break;
      default: ((int64_t *)numbers->values)[i] = id; break;
    }
    lua_pop(L, 1);
  }
  return 1;
}

/* numbers -> table[1 .. count], of the userdata at `index`. */
static void pv_write_table(lua_State *L, int index, const pv_numbers *numbers) {
  pv_kept_table(L, index);
  for (uint64_t i = 0; i < numbers->count; ++i) {
    lua_pushnumber(L, numbers->dtype == MV_F32 ? ((const float *)numbers->values)[i] : numbers->values[i]);
    lua_rawseti(L, -2, (int)(i + 1));
  }
  lua_pop(L, 1);
}

/* After C has filled the argument: where it stands for a table, the table gets the numbers. */
static void pv_written(lua_State *L, int index) {
  if (lua_type(L, index) == LUA_TUSERDATA) pv_write_table(L, index, (const pv_numbers *)lua_touserdata(L, index));
}

/* ------------------------------------------------------------------ buffers */

/* Address, elements and dtype of FFI memory: polyverso/memory.lua asks the FFI library. On top of the stack are the
 * cdata and its count, or nil where its type tells; both are popped. */
static int pv_lend_cdata(lua_State *L, const char *function, int writable, void **data, uint64_t *count,
                         mv_dtype *dtype) {
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
  lua_insert(L, -3);
  lua_pushboolean(L, writable);
  lua_call(L, 3, 3);
  if (lua_isnil(L, -3)) return pv_refuse(L, MV_EDTYPE, function, "data is %s", lua_tostring(L, -2));
  *data = (void *)(intptr_t)lua_tonumber(L, -3);
  *count = (uint64_t)lua_tonumber(L, -2);
  *dtype = (mv_dtype)lua_tonumber(L, -1);
  lua_pop(L, 3);
  return 1;
}

/* FFI memory as an argument: a cdata that knows its length, or {pointer = cdata, count = n}.
 * 1: lent, 0: refused, -1: the argument is neither. */
static int pv_lend_memory(lua_State *L, int index, const char *function, int writable, void **data, uint64_t *count,
                          mv_dtype *dtype) {
  if (lua_type(L, index) == PV_CDATA) {
    lua_pushvalue(L, index);
    lua_pushnil(L);
    return pv_lend_cdata(L, function, writable, data, count, dtype);
  }
  if (lua_type(L, index) != LUA_TTABLE) return -1;
  lua_getfield(L, index, "pointer");
  if (lua_type(L, -1) != PV_CDATA) {
    lua_pop(L, 1);
    return -1;
  }
  lua_getfield(L, index, "count");
  return pv_lend_cdata(L, function, writable, data, count, dtype);
}

/* A call's (data, count, dtype): FFI memory as it is; a table of numbers by copy; a string's bytes as MV_RAW. */
static int pv_lend(lua_State *L, int index, const char *function, int64_t table, int writable, void **data,
                   uint64_t *count, mv_dtype *dtype) {
  *data = NULL;
  *count = 0;
  *dtype = MV_RAW;
  int lent = pv_lend_memory(L, index, function, writable, data, count, dtype);
  if (lent >= 0) {
    if (lent == 0 || *dtype != MV_I64) return lent;
    return pv_refuse(L, MV_EDTYPE, function, "data is FFI memory of int64_t: float or double is needed");
  }
  switch (lua_type(L, index)) {
    case LUA_TNONE:
    case LUA_TNIL: return 1;
    case LUA_TSTRING: {
      size_t length;
      *data = (void *)lua_tolstring(L, index, &length);
      *count = length;
      if (!writable) return 1;
      return pv_refuse(L, MV_EINVAL, function,
                       "data is a string, results need memory to go to: a table {n = count}, or FFI memory");
    }
    case LUA_TTABLE: {
      *dtype = pv_table_dtype(L, index, function, table);
      pv_numbers *numbers = pv_replace_table(L, index, pv_table_count(L, index), *dtype);
      *data = numbers->values;
      *count = numbers->count;
      if (writable) return 1;
      pv_kept_table(L, index);
      if (!pv_read_table(L, numbers, function, "data")) return 0;
      lua_pop(L, 1);
      return 1;
    }
    default:
      return pv_refuse(L, MV_EDTYPE, function,
                       "data must be a table of numbers, FFI memory or a string of bytes, not a %s",
                       luaL_typename(L, index));
  }
}

/* Row ids: a table of integers, FFI memory of int64_t, or a string of 8 bytes for each. */
static int pv_lend_rows(lua_State *L, int index, const char *function, int64_t **rows, uint64_t *count) {
  void *data = NULL;
  mv_dtype dtype = MV_I64;
  *rows = NULL;
  *count = 0;
  int lent = pv_lend_memory(L, index, function, 0, &data, count, &dtype);
  if (lent == 0) return 0;
  if (lent > 0 && dtype != MV_I64)
    return pv_refuse(L, MV_EDTYPE, function, "rows is FFI memory of another type than int64_t");
  if (lent < 0) switch (lua_type(L, index)) {
      case LUA_TNIL: return 1;
      case LUA_TSTRING: {
        size_t length;
        data = (void *)lua_tolstring(L, index, &length);
        *count = length / sizeof(int64_t);
        if (length % sizeof(int64_t))
          return pv_refuse(L, MV_EDTYPE, function, "rows is a string that is not of 8 bytes for each id");
        break;
      }
      case LUA_TTABLE: {
        pv_numbers *numbers = pv_replace_table(L, index, pv_table_count(L, index), MV_I64);
        pv_kept_table(L, index);
        if (!pv_read_table(L, numbers, function, "rows")) return 0;
        lua_pop(L, 1);
        data = numbers->values;
        *count = numbers->count;
        break;
      }
      default:
        return pv_refuse(L, MV_EDTYPE, function, "rows must be a table of integers, not a %s", luaL_typename(L, index));
    }
  *rows = (int64_t *)data;
  return 1;
}

/* ------------------------------------------------------------------ buffers of unfinished requests */

/* Pushes the registry's {request: argument}. */
static void pv_held(lua_State *L) {
  pv_registry(L, &pv_held_key);
  if (!lua_isnil(L, -1)) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushlightuserdata(L, (void *)&pv_held_key);
  lua_pushvalue(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

/* Keeps the argument alive until its request is settled. */
static void pv_hold(lua_State *L, mv_request request, int index) {
  pv_held(L);
  pv_push_integer(L, request);
  lua_pushvalue(L, index);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/* If the request is released by now, lets its argument go; a table gets its numbers first, unless the call failed. */
static void pv_settle(lua_State *L, mv_request request, mv_status status) {
  pv_held(L);
  pv_push_integer(L, request);
  lua_rawget(L, -2);
  if (!lua_isnil(L, -1) && mv_request_error(request) == MV_EHANDLE) {
    if (status == MV_OK) pv_written(L, lua_gettop(L));
    pv_push_integer(L, request);
    lua_pushnil(L);
    lua_rawset(L, -4);
  }
  lua_pop(L, 2);
}

static void pv_settle_all(lua_State *L) {
  pv_held(L);
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    lua_pop(L, 1);
    if (mv_request_error((mv_request)lua_tonumber(L, -1)) == MV_EHANDLE) {
      lua_pushvalue(L, -1);
      lua_pushnil(L);
      lua_rawset(L, -4); /* clearing a field is allowed while walking */
    }
  }
  lua_pop(L, 1);
}

/* ------------------------------------------------------------------ tables of options */

/* The value on top of the stack into its field. */
static int pv_field_set(lua_State *L, const pv_field *field, void *options, char *message) {
  int64_t number;
  switch (lua_type(L, -1)) {
    case LUA_TBOOLEAN: return pv_field_number(options, field, lua_toboolean(L, -1), message);
    case LUA_TSTRING: return pv_field_text(options, field, lua_tostring(L, -1), message);
    default: break;
  }
  if (pv_is_integer(L, -1, &number)) return pv_field_number(options, field, number, message);
  snprintf(message, PV_MESSAGE_SIZE, "option %s is neither an integer nor text", field->key);
  return 0;
}

/* Sets the options' fields from a table; nil leaves them. Its strings stay where they are: the table holds them. */
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

/* argv of a table of strings, as a userdata in the table's place. */
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
    argv[i] = (char *)lua_tostring(L, -1); /* stays where it is: the table holds it */
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

/* Room, in the argument's place, for as many handles as the caller asks to be told at once. */
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

static void pv_push_info(lua_State *L, const mv_table_info *info) {
  lua_createtable(L, 0, 10);
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
}

/* mv_table_list()'s text; asked for again with more room as long as the first answer was cut. */
static int pv_push_list_text(lua_State *L, mv_node node, const char *text, uint64_t capacity, uint64_t length) {
  while (length >= capacity) {
    capacity = length + 1;
    char *more = (char *)lua_newuserdata(L, (size_t)capacity);
    mv_status status = mv_table_list(node, more, capacity, &length);
    if (status != MV_OK) {
      pv_raise(L, status);
      return 0;
    }
    text = more;
  }
  lua_pushlstring(L, text, (size_t)length);
  return 1;
}

#endif
