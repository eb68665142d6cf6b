/* Tensors in Lua: handles that are freed by the garbage collector, and lent memory that is kept alive. */
#ifndef POLYVERSO_SWIG_LUA_TENSOR_H
#define POLYVERSO_SWIG_LUA_TENSOR_H

/* Keys of Lua's registry: {storage = the owner of its memory}, and the owners' metatable. */
static const char pv_lent_key, pv_owner_key;

/* ------------------------------------------------------------------ lent memory */

static void pv_lent(lua_State *L) { pv_registry_table(L, &pv_lent_key); }

static void pv_tensor_keep(lua_State *L, mv_tensor tensor, int index) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  if (mv_tensor_describe(tensor, &info) != MV_OK) return;
  pv_lent(L);
  lua_pushnumber(L, (lua_Number)info.storage);
  lua_pushvalue(L, index);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

/* Frees the handle, and releases lent memory with the last tensor in it. */
static mv_status pv_tensor_free(lua_State *L, mv_tensor tensor) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  const int is_last = mv_tensor_describe(tensor, &info) == MV_OK && info.is_lent && info.sharers == 1;
  const mv_status status = mv_tensor_free(tensor);
  if (status == MV_OK && is_last) {
    pv_lent(L);
    lua_pushnumber(L, (lua_Number)info.storage);
    lua_pushnil(L);
    lua_rawset(L, -3);
    lua_pop(L, 1);
  }
  return status;
}

/* The memory for a tensor view: LuaJIT's. */
static int pv_tensor_memory(lua_State *L, int index, const char *function, void **data, uint64_t *count,
                            mv_dtype *dtype) {
  *data = NULL;
  *count = 0;
  *dtype = MV_RAW;
  const int lent = lua_isnil(L, index) ? 1 : pv_lend_memory(L, index, function, 0, 1, data, count, dtype);
  if (lent >= 0) return lent;
  return pv_refuse(L, MV_EDTYPE, function, "values must be FFI memory, not a %s", luaL_typename(L, index));
}

/* ------------------------------------------------------------------ the size of garbage */

/* Bytes of all tensors and storages that Lua owns, over all Lua states of the process. Lua does not see the size of a tensor, and would
 * collect garbage far too late. */
#define PV_BYTES_LEAST (INT64_C(1) << 26)
static _Atomic int64_t pv_bytes_alive, pv_bytes_allowed = PV_BYTES_LEAST;

/* Called before so many bytes are counted: collects garbage if too much is in use. */
static void pv_account(lua_State *L, int64_t bytes) {
  if (pv_bytes_alive + bytes <= pv_bytes_allowed) return;
  lua_gc(L, LUA_GCCOLLECT, 0);
  const int64_t allowed = 2 * (pv_bytes_alive + bytes);
  pv_bytes_allowed = allowed < PV_BYTES_LEAST ? PV_BYTES_LEAST : allowed;
}

/* Lowers the limit again after large storages are freed. */
static void pv_discount(int64_t bytes) {
  pv_bytes_alive -= bytes;
  const int64_t allowed = 4 * pv_bytes_alive;
  if (allowed < pv_bytes_allowed) pv_bytes_allowed = allowed < PV_BYTES_LEAST ? PV_BYTES_LEAST : allowed;
}

/* ------------------------------------------------------------------ owners */

typedef struct pv_owner {
  mv_tensor tensor;
  int64_t bytes; /* that are its own */
} pv_owner;

static int pv_owner_ends(lua_State *L) {
  pv_owner *owner = (pv_owner *)lua_touserdata(L, 1);
  if (owner && owner->tensor != 0) {
    pv_tensor_free(L, owner->tensor);
    owner->tensor = 0;
    pv_discount(owner->bytes);
  }
  return 0;
}

/* Views have no memory of their own. */
static int64_t pv_own_bytes(mv_tensor tensor) {
  mv_tensor_info about = MV_TENSOR_INFO_INIT;
  return mv_tensor_describe(tensor, &about) == MV_OK && !about.is_view ? (int64_t)about.bytes : 0;
}

/* tensor_owner(handle): a value that frees the tensor when it is collected. */
static int pv_tensor_owner(lua_State *L) {
  const mv_tensor tensor = (mv_tensor)luaL_checknumber(L, 1);
  const int64_t bytes = pv_own_bytes(tensor);
  pv_account(L, bytes);
  pv_owner *owner = (pv_owner *)lua_newuserdata(L, sizeof *owner);
  owner->tensor = tensor;
  owner->bytes = bytes;
  pv_bytes_alive += bytes;
  pv_registry(L, &pv_owner_key);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_createtable(L, 0, 2);
    lua_pushcfunction(L, pv_owner_ends);
    lua_setfield(L, -2, "__gc");
    lua_createtable(L, 0, 1); /* owner:free() */
    lua_pushcfunction(L, pv_owner_ends);
    lua_setfield(L, -2, "free");
    lua_setfield(L, -2, "__index");
    lua_pushlightuserdata(L, (void *)&pv_owner_key);
    lua_pushvalue(L, -2);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  lua_setmetatable(L, -2);
  return 1;
}

/* ------------------------------------------------------------------ values */

/* A tensor as an argument: a polyverso.tensor, a handle, or nil for 0. */
static int pv_tensor_handle(lua_State *L, int index, const char *function, mv_tensor *tensor) {
  *tensor = 0;
  if (lua_isnil(L, index)) return 1;
  if (lua_type(L, index) != LUA_TTABLE) return pv_integer(L, index, function, "mv_tensor", tensor);
  lua_pushliteral(L, "mv_tensor");
  lua_rawget(L, index);
  const int known = pv_is_integer(L, -1, tensor);
  lua_pop(L, 1);
  return known || pv_refuse(L, MV_EINVAL, function, "argument %d is a table, but not a tensor", index);
}

/* tensor_lengths(handle): the number of dimensions, and the first two lengths, or 0. */
static int pv_tensor_lengths(lua_State *L) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  const mv_status status = mv_tensor_describe((mv_tensor)luaL_checknumber(L, 1), &info);
  if (status != MV_OK) {
    pv_raise(L, status);
    return lua_error(L);
  }
  pv_push_integer(L, info.dims);
  for (uint32_t d = 0; d < 2; ++d) pv_push_integer(L, d < info.dims ? info.shape[d] : 0);
  return 3;
}

/* The tensor in the table at `index`; 0: it is no polyverso.tensor, or has ended. */
static int pv_described(lua_State *L, int index, mv_tensor_info *info) {
  mv_tensor tensor = 0;
  if (lua_type(L, index) != LUA_TTABLE) return 0;
  lua_pushliteral(L, "mv_tensor");
  lua_rawget(L, index);
  const int known = pv_is_integer(L, -1, &tensor);
  lua_pop(L, 1);
  return known && mv_tensor_describe(tensor, info) == MV_OK;
}

/* plain_rows(how, data, cols): the ids and the data of a call, if `how` has nothing but rows or keys (and without data, out), and both are tensors that
 * the C functions take as they are; else nothing. cols 0: data of any dimensions. */
static int pv_plain_rows(lua_State *L) {
  enum { kHow = 1, kData, kCols, kIds };
  mv_tensor_info ids = MV_TENSOR_INFO_INIT, data = MV_TENSOR_INFO_INIT;
  lua_settop(L, kIds - 1);
  lua_pushnil(L);
  if (lua_type(L, kHow) != LUA_TTABLE) return 0;
  lua_pushnil(L);
  while (lua_next(L, kHow)) {
    const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    const int place = strcmp(name, "rows") == 0 || strcmp(name, "keys") == 0 ? kIds : strcmp(name, "out") == 0 ? kData : 0;
    if (place == 0 || !lua_isnil(L, place)) return 0;
    lua_replace(L, place);
  }
  if (!pv_described(L, kIds, &ids) || ids.dims != 1 || ids.dtype != MV_I64 || !pv_described(L, kData, &data)) return 0;
  const lua_Number cols = lua_tonumber(L, kCols);
  if (cols != 0 && data.dims > 1 && (data.dims != 2 || data.shape[0] != ids.shape[0] || (lua_Number)data.shape[1] != cols)) return 0;
  lua_pushvalue(L, kIds);
  lua_pushvalue(L, kData);
  return 2;
}

/* crc32(text): for the labels of arrays, which are short, so no table of remainders is kept. */
static int pv_crc32(lua_State *L) {
  size_t length;
  const char *text = luaL_checklstring(L, 1, &length);
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < length; ++i) {
    crc ^= (unsigned char)text[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xEDB88320) : 0);
  }
  pv_push_integer(L, (int64_t)~crc & UINT32_MAX);
  return 1;
}

/* One integer, or a table of them. Beyond the largest number of dimensions they are only counted: the function will
 * refuse them. */
static int pv_lengths(lua_State *L, int index, const char *function, int64_t *lengths, uint64_t *dims) {
  *dims = 1;
  if (lua_type(L, index) == LUA_TNUMBER) return pv_integer(L, index, function, "length", lengths);
  if (lua_type(L, index) != LUA_TTABLE)
    return pv_refuse(L, MV_EINVAL, function, "argument %d must be a table of integers, not a %s", index,
                     luaL_typename(L, index));
  *dims = pv_length(L, index);
  for (uint64_t i = 0; i < *dims && i < MV_MAX_DIMS; ++i) {
    lua_rawgeti(L, index, (int)(i + 1));
    if (!pv_is_integer(L, -1, &lengths[i]))
      return pv_refuse(L, MV_EINVAL, function, "element %d of argument %d is not an integer", (int)(i + 1), index);
    lua_pop(L, 1);
  }
  return 1;
}

static void pv_push_tensor_info(lua_State *L, const mv_tensor_info *info) {
  lua_createtable(L, 0, 12);
  lua_createtable(L, (int)info->dims, 0);
  for (uint32_t d = 0; d < info->dims; ++d) {
    pv_push_integer(L, info->shape[d]);
    lua_rawseti(L, -2, (int)(d + 1));
  }
  lua_setfield(L, -2, "shape");
  pv_set_integer(L, "dtype", info->dtype);
  pv_set_integer(L, "count", (int64_t)info->count);
  pv_set_integer(L, "bytes", (int64_t)info->bytes);
  pv_set_integer(L, "is_view", info->is_view);
  pv_set_integer(L, "is_lent", info->is_lent);
  pv_set_integer(L, "is_shared", info->is_shared);
  pv_set_integer(L, "row_sparse", info->row_sparse);
  pv_set_integer(L, "rows_held", (int64_t)info->rows_held);
  pv_set_integer(L, "storage", (int64_t)info->storage);
  pv_set_integer(L, "sharers", (int64_t)info->sharers);
  pv_set_integer(L, "device", info->device);
}

static void pv_push_device_info(lua_State *L, const mv_device_info *info) {
  const char *const names[] = {"name", "model", "bus", "driver", "runtime"};
  const char *const texts[] = {info->name, info->model, info->bus, info->driver, info->runtime};
  lua_createtable(L, 0, 9);
  for (int i = 0; i < 5; ++i) {
    lua_pushstring(L, texts[i]);
    lua_setfield(L, -2, names[i]);
  }
  pv_set_integer(L, "architecture", info->architecture);
  pv_set_integer(L, "processors", info->processors);
  pv_set_integer(L, "memory", (int64_t)info->memory);
  pv_set_integer(L, "unused", (int64_t)info->unused);
}

/* The text of mv_tensor_text(); repeats the call with more room if the text was cut. */
static int pv_push_tensor_text(lua_State *L, mv_tensor tensor, const char *text, uint64_t capacity, uint64_t length) {
  if (length >= capacity) {
    char *more = (char *)lua_newuserdata(L, (size_t)length + 1);
    const mv_status status = mv_tensor_text(tensor, more, length + 1, &length);
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
