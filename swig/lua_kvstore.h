/* Key-value stores in Lua: the keys and the tensors of a call. Their memory is a userdata that replaces the argument
 * and keeps it alive. */
#ifndef POLYVERSO_SWIG_LUA_KVSTORE_H
#define POLYVERSO_SWIG_LUA_KVSTORE_H

/* Replaces the argument by `bytes` of zeros, which keep the table on top of the stack alive; pops the table. */
static void *pv_replace_argument(lua_State *L, int index, size_t bytes) {
  void *room = lua_newuserdata(L, bytes);
  memset(room, 0, bytes);
  lua_insert(L, -2);
  pv_keep_table(L, lua_gettop(L) - 1);
  lua_replace(L, index);
  return room;
}

/* Pushes the table at `index`, or a table that contains the value at `index`. */
static void pv_push_list(lua_State *L, int index, int is_list) {
  if (is_list) {
    lua_pushvalue(L, index);
    return;
  }
  lua_createtable(L, 1, 0);
  lua_pushvalue(L, index);
  lua_rawseti(L, -2, 1);
}

/* Reads the key on top of the stack, and pops it. */
static int pv_read_key(lua_State *L, const char *function, kv_keys *keys, uint64_t place) {
  const int is_name = lua_type(L, -1) == LUA_TSTRING;
  int64_t number = 0;
  if (!is_name && !pv_is_integer(L, -1, &number)) {
    const int is_number = lua_type(L, -1) == LUA_TNUMBER;
    return pv_refuse(L, MV_EINVAL, function, "key %d must be an integer or a name, not %s%s", (int)place + 1, is_number ? "" : "a ",
                     is_number ? lua_tostring(L, -1) : luaL_typename(L, -1));
  }
  if (is_name != (keys->names != NULL))
    return pv_refuse(L, MV_EINVAL, function, "keys must be all numbers or all names, but key 1 is a %s and key %d is not",
                     keys->names ? "name" : "number", (int)place + 1);
  if (is_name) {
    if (!pv_text(L, lua_gettop(L), function, (const char **)&keys->names[place])) return 0;
  } else {
    ((int64_t *)keys->numbers)[place] = number;
  }
  lua_pop(L, 1);
  return 1;
}

/* Reads an integer or a name, or a table of them. */
static int pv_keys(lua_State *L, int index, const char *function, kv_keys *keys) {
  const int is_list = lua_type(L, index) == LUA_TTABLE;
  keys->count = is_list ? (uint64_t)pv_length(L, index) : 1;
  pv_push_list(L, index, is_list);
  void *room = pv_replace_argument(L, index, (size_t)(keys->count + 1) * sizeof(int64_t));
  pv_kept_table(L, index);
  const int list = lua_gettop(L);
  lua_rawgeti(L, list, 1);
  if (lua_type(L, -1) == LUA_TSTRING)
    keys->names = (const char *const *)room;
  else
    keys->numbers = (const int64_t *)room;
  lua_pop(L, 1);
  for (uint64_t i = 0; i < keys->count; ++i) {
    lua_rawgeti(L, list, (int)(i + 1));
    if (!pv_read_key(L, function, keys, i)) return 0;
  }
  lua_pop(L, 1);
  return 1;
}

/* Whether a table is a list, rather than a polyverso tensor. */
static int pv_is_list(lua_State *L, int index) {
  if (lua_type(L, index) != LUA_TTABLE) return 0;
  lua_pushliteral(L, "mv_tensor");
  lua_rawget(L, index);
  const int is_list = lua_isnil(L, -1);
  lua_pop(L, 1);
  return is_list;
}

/* The number of tensors in element `i` of the list at `index`; *is_nested = 1 if it is itself a list. */
static uint64_t pv_tensors_in(lua_State *L, int index, uint64_t i, int *is_nested) {
  uint64_t count = 1;
  lua_rawgeti(L, index, (int)(i + 1));
  if (pv_is_list(L, lua_gettop(L))) {
    *is_nested = 1;
    count = (uint64_t)pv_length(L, lua_gettop(L));
  }
  lua_pop(L, 1);
  return count;
}

/* Reads the tensors of the value on top of the stack, one or a list of `some`, and pops it; also stores them in the
 * table at `kept`. */
static int pv_read_tensors(lua_State *L, const char *function, int kept, uint64_t some, kv_values *values) {
  const int item = lua_gettop(L), is_list = pv_is_list(L, item);
  for (uint64_t k = 0; k < some; ++k) {
    if (is_list)
      lua_rawgeti(L, item, (int)(k + 1));
    else
      lua_pushvalue(L, item);
    mv_tensor *tensor = (mv_tensor *)&values->tensors[values->count++];
    if (lua_type(L, -1) != LUA_TTABLE && !pv_is_integer(L, -1, tensor))
      return pv_refuse(L, MV_EINVAL, function, "value %d must be a tensor, not a %s", (int)values->count, luaL_typename(L, -1));
    if (lua_type(L, -1) == LUA_TTABLE && !pv_tensor_handle(L, lua_gettop(L), function, tensor)) return 0;
    lua_rawseti(L, kept, (int)values->count);
  }
  lua_pop(L, 1);
  return 1;
}

/* Replaces the argument {tensors = ..., priority = n} by its tensors; leaves any other argument as it is. */
static int pv_unwrap_tensors(lua_State *L, int index, const char *function, kv_values *values) {
  if (!pv_is_list(L, index)) return 1;
  lua_getfield(L, index, "priority");
  const int is_wrong = !lua_isnil(L, -1) && !pv_is_integer(L, -1, &values->priority), is_there = !lua_isnil(L, -1);
  lua_pop(L, 1);
  if (is_wrong) return pv_refuse(L, MV_EINVAL, function, "priority must be an integer");
  lua_getfield(L, index, "tensors");
  if (!lua_isnil(L, -1)) {
    lua_replace(L, index);
    return 1;
  }
  lua_pop(L, 1);
  return !is_there || pv_refuse(L, MV_EINVAL, function, "values with a priority must have a field 'tensors'");
}

/* Reads the tensors of `key_count` keys. A flat list does not determine the number for each key: the C function
 * does. In a list that contains lists, each element belongs to one key. A key without any has 0, which the C
 * function refuses. */
static int pv_tensors(lua_State *L, int index, const char *function, uint64_t key_count, kv_values *values) {
  if (!pv_unwrap_tensors(L, index, function, values)) return 0;
  pv_push_list(L, index, pv_is_list(L, index));
  const int list = lua_gettop(L);
  const uint64_t length = (uint64_t)pv_length(L, list), places = length + key_count;
  uint64_t count = 0;
  int is_nested = 0;
  for (uint64_t i = 0; i < length; ++i) count += pv_tensors_in(L, list, i, &is_nested);
  lua_createtable(L, (int)count, 0);
  const int kept = lua_gettop(L);
  lua_pushvalue(L, kept);
  mv_tensor *room = (mv_tensor *)pv_replace_argument(L, index, (size_t)(places + count + 1) * sizeof(uint64_t));
  uint64_t *per_key = (uint64_t *)room + count + 1;
  values->tensors = room;
  if (is_nested) values->per_key = per_key;
  for (uint64_t i = 0; i < length; ++i) {
    per_key[i] = pv_tensors_in(L, list, i, &is_nested);
    lua_rawgeti(L, list, (int)(i + 1));
    if (!pv_read_tensors(L, function, kept, per_key[i], values)) return 0;
  }
  lua_pop(L, 2);
  return 1;
}

/* Keeps the tensors of argument `index` until their request is settled. */
static void pv_hold_all(lua_State *L, mv_request request, int index) {
  pv_kept_table(L, index);
  pv_hold(L, request, lua_gettop(L));
  lua_pop(L, 1);
}

#endif
