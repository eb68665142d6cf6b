/* Memory that is passed between Lua and C: tables of numbers, FFI memory, strings of bytes. Continues lua_values.h. */
#ifndef POLYVERSO_SWIG_LUA_MEMORY_H
#define POLYVERSO_SWIG_LUA_MEMORY_H

/* ------------------------------------------------------------------ tables of numbers */

/* The numbers of a Lua table as a C array. It replaces the table among the arguments and keeps the table alive. */
typedef struct {
  uint64_t count;
  mv_dtype dtype;
  double values[]; /* or elements of another dtype */
} pv_numbers;

/* table.n, or else #table. */
static int64_t pv_table_count(lua_State *L, int index) {
  int64_t count;
  lua_getfield(L, index, "n");
  if (!pv_is_integer(L, -1, &count) || count < 0) count = (int64_t)pv_length(L, index);
  lua_pop(L, 1);
  return count;
}

/* The dtype of an mv_table, which is requested once; MV_F32 if it is not a table, which the call itself will report. */
static int pv_dtype_of(lua_State *L, int64_t table, mv_dtype *dtype) {
  pv_registry_table(L, &pv_dtypes_key);
  pv_push_integer(L, table);
  lua_rawget(L, -2);
  *dtype = (mv_dtype)lua_tonumber(L, -1);
  lua_pop(L, 1);
  if (*dtype == MV_RAW) {
    mv_table_info info = MV_TABLE_INFO_INIT;
    const mv_status status = mv_table_describe(table, &info);
    if (status != MV_OK && status != MV_EHANDLE) {
      pv_raise(L, status);
      return 0;
    }
    *dtype = status == MV_OK ? info.dtype : MV_F32;
    if (status == MV_OK) {
      pv_push_integer(L, table);
      pv_push_integer(L, *dtype);
      lua_rawset(L, -3);
    }
  }
  lua_pop(L, 1);
  return 1;
}

/* The dtype of a table of numbers: table.dtype, else the dtype of the mv_table of the call. */
static int pv_table_dtype(lua_State *L, int index, const char *function, int64_t table, mv_dtype *dtype) {
  int64_t said = 0;
  lua_getfield(L, index, "dtype");
  const int is_said = !lua_isnil(L, -1);
  const int known = pv_is_integer(L, -1, &said) && said == (mv_dtype)said && pv_dtype_bytes((mv_dtype)said) != 0;
  lua_pop(L, 1);
  if (is_said && !known) return pv_refuse(L, MV_EDTYPE, function, "data.dtype is not a dtype of tables, such as MV_F32");
  *dtype = is_said ? (mv_dtype)said : MV_F32;
  return is_said || strncmp(function, "mv_table_create", 15) == 0 || pv_dtype_of(L, table, dtype);
}

/* Replaces the table at `index` by memory for `count` numbers, which keeps the table alive. */
static pv_numbers *pv_replace_table(lua_State *L, int index, int64_t count, mv_dtype dtype) {
  const size_t bytes = (size_t)count * pv_dtype_bytes(dtype);
  pv_numbers *numbers = (pv_numbers *)lua_newuserdata(L, sizeof(pv_numbers) + bytes + sizeof(double));
  numbers->count = (uint64_t)count;
  numbers->dtype = dtype;
  lua_pushvalue(L, index);
  pv_keep_table(L, lua_gettop(L) - 1);
  lua_replace(L, index);
  return numbers;
}

/* Stores the number on top of the stack at index `i`; 0 if it is not a number, or does not fit. */
static int pv_read_number(lua_State *L, pv_numbers *numbers, uint64_t i) {
  const mv_dtype dtype = numbers->dtype;
  int64_t whole = 0;
  if (dtype == MV_I64 || dtype == MV_I32 || dtype == MV_U8 || dtype == MV_I8) {
    if (!pv_is_integer(L, -1, &whole)) return 0;
    if (dtype == MV_I32 && whole != (int32_t)whole) return 0;
    if (dtype == MV_U8 && whole != (uint8_t)whole) return 0;
    if (dtype == MV_I8 && whole != (int8_t)whole) return 0;
  } else if (lua_type(L, -1) != LUA_TNUMBER) {
    return 0;
  }
  switch (dtype) {
    case MV_F32: ((float *)numbers->values)[i] = (float)lua_tonumber(L, -1); break;
    case MV_F64: numbers->values[i] = lua_tonumber(L, -1); break;
    case MV_I64: ((int64_t *)numbers->values)[i] = whole; break;
    case MV_I32: ((int32_t *)numbers->values)[i] = (int32_t)whole; break;
    case MV_U8: ((uint8_t *)numbers->values)[i] = (uint8_t)whole; break;
    case MV_I8: ((int8_t *)numbers->values)[i] = (int8_t)whole; break;
    default: ((uint16_t *)numbers->values)[i] = pv_half_of(dtype, lua_tonumber(L, -1)); break;
  }
  return 1;
}

/* table[1 .. count] -> numbers. The table is on top of the stack. */
static int pv_read_table(lua_State *L, pv_numbers *numbers, const char *function, const char *what) {
  static const char *const wanted[] = {
      "",         "a number", "a number", "an integer", "a 32-bit integer", "an integer of 0 .. 255",
      "a number", "a number", "an integer of -128 .. 127"};
  for (uint64_t i = 0; i < numbers->count; ++i) {
    lua_rawgeti(L, -1, (int)(i + 1));
    if (!pv_read_number(L, numbers, i)) {
      const int is_number = lua_type(L, -1) == LUA_TNUMBER;
      return pv_refuse(L, MV_EDTYPE, function, "%s[%" PRIu64 "] is %s%s, not %s", what, i + 1, is_number ? "" : "a ",
                       is_number ? lua_tostring(L, -1) : luaL_typename(L, -1), wanted[numbers->dtype]);
    }
    lua_pop(L, 1);
  }
  return 1;
}

/* numbers -> table[1 .. count], for the userdata at `index`. */
static int pv_write_table(lua_State *L, int index, const pv_numbers *numbers, const char *function) {
  const mv_dtype dtype = numbers->dtype;
  const double *values = numbers->values;
  pv_kept_table(L, index);
  for (uint64_t i = 0; i < numbers->count; ++i) {
    switch (dtype) {
      case MV_F32: lua_pushnumber(L, ((const float *)values)[i]); break;
      case MV_F64: lua_pushnumber(L, values[i]); break;
      case MV_I64:
        if (!pv_push_exact(L, function, ((const int64_t *)values)[i])) return 0;
        break;
      case MV_I32: pv_push_integer(L, ((const int32_t *)values)[i]); break;
      case MV_U8: pv_push_integer(L, ((const uint8_t *)values)[i]); break;
      case MV_I8: pv_push_integer(L, ((const int8_t *)values)[i]); break;
      default: lua_pushnumber(L, pv_number_of_half(dtype, ((const uint16_t *)values)[i])); break;
    }
    lua_rawseti(L, -2, (int)(i + 1));
  }
  lua_pop(L, 1);
  return 1;
}

/* Called after C has filled the argument: if it replaced a table, copies the numbers to the table. */
static int pv_written(lua_State *L, int index, const char *function) {
  return lua_type(L, index) != LUA_TUSERDATA ||
         pv_write_table(L, index, (const pv_numbers *)lua_touserdata(L, index), function);
}

/* pv_written(), after C has filled the first `found` of `capacity` rows of it. */
static int pv_written_rows(lua_State *L, int index, const char *function, uint64_t capacity, uint64_t found) {
  if (lua_type(L, index) != LUA_TUSERDATA) return 1;
  pv_numbers *numbers = (pv_numbers *)lua_touserdata(L, index);
  numbers->count = capacity ? numbers->count / capacity * found : 0;
  return pv_write_table(L, index, numbers, function);
}

/* Called after a scan, which filled the first `found` of `capacity` rows of the arguments `rows` and `data`. */
static int pv_scanned(lua_State *L, const char *function, int rows, int data, uint64_t capacity, uint64_t found) {
  return pv_written_rows(L, rows, function, capacity, found) && pv_written_rows(L, data, function, capacity, found);
}

/* ------------------------------------------------------------------ buffers */

/* Address, elements and dtype of FFI memory: polyverso/memory.lua asks the FFI library. On top of the stack are the
 * cdata and its count, or nil if its type determines it; both are popped. */
static int pv_lend_cdata(lua_State *L, const char *function, int writable, void **data, uint64_t *count,
                         mv_dtype *dtype) {
  pv_push_memory(L, "look");
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

/* FFI memory as an argument: a cdata of known length, or {pointer = cdata, count = n}.
 * 1: lent, 0: refused, -1: the argument is neither. */
static int pv_lend_memory(lua_State *L, int index, const char *function, int takes_devices, int writable, void **data, uint64_t *count,
                          mv_dtype *dtype) {
  if (lua_type(L, index) == PV_CDATA) {
    lua_pushvalue(L, index);
    lua_pushnil(L);
    return pv_lend_cdata(L, function, writable, data, count, dtype);
  }
  if (lua_type(L, index) != LUA_TTABLE) return -1;
  lua_pushliteral(L, "mv_tensor"); /* a polyverso.tensor: its handle */
  lua_rawget(L, index);
  if (lua_type(L, -1) == LUA_TNUMBER) {
    const mv_status status = pv_data_of((mv_tensor)lua_tonumber(L, -1), takes_devices, data, count, dtype);
    lua_pop(L, 1);
    if (status != MV_OK) pv_raise(L, status);
    return status == MV_OK;
  }
  lua_pop(L, 1);
  lua_getfield(L, index, "pointer");
  if (lua_type(L, -1) != PV_CDATA) {
    lua_pop(L, 1);
    return -1;
  }
  lua_getfield(L, index, "count");
  return pv_lend_cdata(L, function, writable, data, count, dtype);
}

/* A call's (data, count, dtype): FFI memory in place; a table of numbers by copy; a string's bytes as MV_RAW. */
static int pv_lend(lua_State *L, int index, const char *function, int64_t table, int writable, void **data,
                   uint64_t *count, mv_dtype *dtype) {
  *data = NULL;
  *count = 0;
  *dtype = MV_RAW;
  int lent = pv_lend_memory(L, index, function, pv_takes_devices(function), writable, data, count, dtype);
  if (lent >= 0) return lent;
  switch (lua_type(L, index)) {
    case LUA_TNONE:
    case LUA_TNIL: return 1;
    case LUA_TSTRING: {
      size_t length;
      *data = (void *)lua_tolstring(L, index, &length);
      *count = length;
      if (!writable) return 1;
      return pv_refuse(L, MV_EINVAL, function,
                       "data is a string: results need a table {n = count} or FFI memory");
    }
    case LUA_TTABLE: {
      if (!pv_table_dtype(L, index, function, table, dtype)) return 0;
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
static int pv_lend_rows(lua_State *L, int index, const char *function, int writable, int64_t **rows, uint64_t *count) {
  void *data = NULL;
  mv_dtype dtype = MV_I64;
  *rows = NULL;
  *count = 0;
  int lent = pv_lend_memory(L, index, function, 0, writable, &data, count, &dtype);
  if (lent == 0) return 0;
  if (lent > 0 && dtype != MV_I64)
    return pv_refuse(L, MV_EDTYPE, function, "rows must be FFI memory of type int64_t");
  if (lent < 0) switch (lua_type(L, index)) {
      case LUA_TNIL: return 1;
      case LUA_TSTRING: {
        size_t length;
        data = (void *)lua_tolstring(L, index, &length);
        *count = length / sizeof(int64_t);
        if (length % sizeof(int64_t))
          return pv_refuse(L, MV_EDTYPE, function, "rows is a string without exactly 8 bytes per id");
        if (writable)
          return pv_refuse(L, MV_EINVAL, function, "rows is a string: results need a table {n = count} or FFI memory");
        break;
      }
      case LUA_TTABLE: {
        pv_numbers *numbers = pv_replace_table(L, index, pv_table_count(L, index), MV_I64);
        data = numbers->values;
        *count = numbers->count;
        if (writable) break;
        pv_kept_table(L, index);
        if (!pv_read_table(L, numbers, function, "rows")) return 0;
        lua_pop(L, 1);
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
static void pv_held(lua_State *L) { pv_registry_table(L, &pv_held_key); }

static void pv_sweep(lua_State *L);

/* Keeps the argument alive until its request is settled. */
static void pv_hold(lua_State *L, mv_request request, int index) {
  pv_sweep(L);
  pv_held(L);
  pv_push_integer(L, request);
  lua_pushvalue(L, index);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/* If the request is released by now, releases its argument; a table gets its numbers first, unless the call failed. */
static int pv_settle(lua_State *L, const char *function, mv_request request, mv_status status) {
  int written = 1;
  pv_held(L);
  pv_push_integer(L, request);
  lua_rawget(L, -2);
  if (!lua_isnil(L, -1) && mv_request_error(request) == MV_EHANDLE) {
    const int held = lua_gettop(L) - 1, argument = held + 1;
    pv_push_integer(L, request);
    lua_pushnil(L);
    lua_rawset(L, held);
    if (status == MV_OK) written = pv_written(L, argument, function);
  }
  if (written) lua_pop(L, 2);
  return written;
}

/* pv_settle() for a request whose result is discarded. */
static void pv_forget(lua_State *L, mv_request request) {
  pv_held(L);
  pv_push_integer(L, request);
  lua_rawget(L, -2);
  if (!lua_isnil(L, -1) && mv_request_error(request) == MV_EHANDLE) {
    pv_push_integer(L, request);
    lua_pushnil(L);
    lua_rawset(L, -4);
  }
  lua_pop(L, 2);
}

/* Leaves a request that can't be released yet to pv_sweep(): adds it to a set in the registry. */
static mv_status pv_drop(lua_State *L, mv_request request) {
  pv_registry_table(L, &pv_dropped_key);
  pv_push_integer(L, request);
  lua_pushboolean(L, 1);
  lua_rawset(L, -3);
  lua_pop(L, 1);
  return MV_OK;
}

/* Releases dropped requests that have finished. Checks all of them, but not at each call: amortized constant cost. */
static void pv_sweep(lua_State *L) {
  static __thread size_t calls, left;
  if (++calls < left) return;
  const int top = lua_gettop(L);
  calls = left = 0;
  pv_registry_table(L, &pv_dropped_key);
  for (lua_pushnil(L); lua_next(L, top + 1); ++left) {
    const mv_request request = (mv_request)lua_tonumber(L, -2);
    lua_pop(L, 1);
    if (mv_request_release(request) == MV_EPENDING) continue;
    lua_pushvalue(L, -1);
    lua_pushnil(L);
    lua_rawset(L, top + 1); /* clearing a field is allowed during the traversal */
    pv_forget(L, request);
  }
  lua_settop(L, top);
}

static void pv_settle_all(lua_State *L) {
  pv_held(L);
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    lua_pop(L, 1);
    if (mv_request_error((mv_request)lua_tonumber(L, -1)) == MV_EHANDLE) {
      lua_pushvalue(L, -1);
      lua_pushnil(L);
      lua_rawset(L, -4); /* clearing a field is allowed during the traversal */
    }
  }
  lua_pop(L, 1);
}

#endif
