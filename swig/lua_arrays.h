/* Lists of arrays in Lua: a table of tensors or of FFI memory, used in place. */
#ifndef POLYVERSO_SWIG_LUA_ARRAYS_H
#define POLYVERSO_SWIG_LUA_ARRAYS_H

/* The arrays, with their notes, of the table at `index`, in a userdata that replaces the table and keeps it alive;
 * pushed after the arguments it would count as one. NULL with an error set. */
static mv_array *pv_lend_arrays(lua_State *L, int index, const char *function, uint64_t *count) {
  if (!lua_istable(L, index)) {
    pv_refuse(L, MV_EINVAL, function, "a table of tensors or of FFI memory is needed, not a %s", luaL_typename(L, index));
    return NULL;
  }
  *count = (uint64_t)pv_length(L, index);
  mv_array *const arrays = (mv_array *)lua_newuserdata(L, (size_t)(*count + 1) * sizeof(mv_array));
  memset(arrays, 0, (size_t)(*count + 1) * sizeof *arrays);
  lua_getfield(L, index, "notes"); /* a list as long as the table, or nil */
  for (uint64_t i = 0; i < *count && lua_istable(L, -1); ++i) {
    lua_rawgeti(L, -1, (int)i + 1);
    arrays[i].note = (uint32_t)lua_tonumber(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  for (uint64_t i = 0; i < *count; ++i) {
    lua_rawgeti(L, index, (int)i + 1);
    const char *const name = pv_array_of(function, i);
    const int lent = pv_lend_memory(L, lua_gettop(L), name, pv_takes_devices(name), 1, &arrays[i].data, &arrays[i].count, &arrays[i].dtype);
    lua_pop(L, 1);
    if (lent > 0) continue;
    if (lent < 0) pv_refuse(L, MV_EDTYPE, function, "array %d is neither a tensor nor FFI memory", (int)i + 1);
    return NULL;
  }
  lua_pushvalue(L, index);
  pv_keep_table(L, lua_gettop(L) - 1);
  lua_replace(L, index);
  return arrays;
}

/* A tensor or FFI memory, which can be changed in place; a table of numbers would be a copy. */
static int pv_lend_in_place(lua_State *L, int index, const char *function, void **data, uint64_t *count, mv_dtype *dtype) {
  const int lent = pv_lend_memory(L, index, function, pv_takes_devices(function), 1, data, count, dtype);
  if (lent < 0) pv_refuse(L, MV_EDTYPE, function, "a tensor or FFI memory is needed, not a %s", luaL_typename(L, index));
  return lent > 0;
}

/* Keeps the list alive until its request is settled. */
static void pv_hold_arrays(lua_State *L, mv_request request, int index) {
  pv_kept_table(L, index);
  pv_hold(L, request, lua_gettop(L));
  lua_pop(L, 1);
}

/* pv_hold() of a receive's data, and of the place for its sender's rank, which may be nil. */
static void pv_hold_with_place(lua_State *L, mv_request request, int data, int place) {
  if (lua_isnoneornil(L, place)) {
    pv_hold(L, request, data);
    return;
  }
  lua_createtable(L, 2, 0);
  lua_pushvalue(L, data);
  lua_rawseti(L, -2, 1);
  lua_pushvalue(L, place);
  lua_rawseti(L, -2, 2);
  pv_hold(L, request, lua_gettop(L));
  lua_pop(L, 1);
}

/* ------------------------------------------------------------------ custom reductions */

/* A key of Lua's registry: {custom = the userdata of pv_lend_arrays()}, from begin to end. */
static const char pv_customs_key;

static void pv_custom_begun(lua_State *L, mv_custom custom, int index) {
  pv_registry_table(L, &pv_customs_key);
  pv_push_integer(L, custom);
  lua_pushvalue(L, index);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/* The number of arrays that the reduction has; -1: it was not begun here, or has ended. */
static int64_t pv_custom_arrays(lua_State *L, mv_custom custom) {
  int64_t arrays = -1;
  pv_registry_table(L, &pv_customs_key);
  pv_push_integer(L, custom);
  lua_rawget(L, -2);
  if (!lua_isnil(L, -1)) arrays = (int64_t)(pv_length(L, lua_gettop(L)) / sizeof(mv_array)) - 1;
  lua_pop(L, 2);
  return arrays;
}

static void pv_custom_ended(lua_State *L, mv_custom custom) {
  pv_registry_table(L, &pv_customs_key);
  pv_push_integer(L, custom);
  lua_pushnil(L);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

#endif
