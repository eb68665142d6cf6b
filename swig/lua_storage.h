/* Torch's storages on C tensors: one-dimensional memory. lua/compat/torch defines their methods. Unlike the
 * functions of the C API these raise strings, as Torch did. Arguments and results count from 1, fields from 0. */
#ifndef POLYVERSO_SWIG_LUA_STORAGE_H
#define POLYVERSO_SWIG_LUA_STORAGE_H

typedef struct pv_storage {
  int64_t holders; /* Lua values that refer to it */
  mv_tensor tensor;
  void *data;
  int64_t count;
  mv_dtype dtype;
} pv_storage;

/* The Lua value of a storage; `kind` distinguishes it from other libraries' userdata. */
typedef struct pv_storage_value {
  const void *kind;
  pv_storage *storage;
} pv_storage_value;

enum { kPvDtypes = 8 };
/* Also the keys of the metatables in Lua's registry, by dtype. */
static const char pv_storage_keys[kPvDtypes];

/* ------------------------------------------------------------------ errors */

/* Raises a string that begins with the user's file and line. */
static int pv_fail(lua_State *L, const char *format, ...) {
  char text[PV_MESSAGE_SIZE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  pv_push_where(L);
  lua_pushstring(L, text);
  lua_concat(L, 2);
  return lua_error(L);
}

static void pv_check_type(lua_State *L, int index, int type) {
  if (lua_type(L, index) != type)
    pv_fail(L, "argument #%d is a %s, a %s is expected", index, luaL_typename(L, index), lua_typename(L, type));
}

static double pv_check_number(lua_State *L, int index) {
  pv_check_type(L, index, LUA_TNUMBER);
  return lua_tonumber(L, index);
}

static int pv_strided_fail(lua_State *L) { return pv_fail(L, "%s", luaL_checkstring(L, 1)); }

/* ------------------------------------------------------------------ elements */

static int64_t pv_element_size(mv_dtype dtype) {
  switch (dtype) {
    case MV_F64:
    case MV_I64:
      return 8;
    case MV_U8:
      return 1;
    default:
      return 4;
  }
}

static int pv_is_integral(mv_dtype dtype) { return dtype == MV_I64 || dtype == MV_I32 || dtype == MV_U8; }

/* As mv_tensor_cast(): truncated towards zero, limited to the range; NaN becomes 0. */
static int64_t pv_whole(double value, int64_t least, int64_t most) {
  if (value != value) return 0;
  if (value <= (double)least) return least;
  return value >= (double)most ? most : (int64_t)value;
}

static double pv_element(const pv_storage *storage, int64_t at) {
  switch (storage->dtype) {
    case MV_F32:
      return (double)((const float *)storage->data)[at];
    case MV_F64:
      return ((const double *)storage->data)[at];
    case MV_I64:
      return (double)((const int64_t *)storage->data)[at];
    case MV_I32:
      return ((const int32_t *)storage->data)[at];
    default:
      return ((const uint8_t *)storage->data)[at];
  }
}

static void pv_set_element(pv_storage *storage, int64_t at, double value) {
  switch (storage->dtype) {
    case MV_F32:
      ((float *)storage->data)[at] = (float)value;
      break;
    case MV_F64:
      ((double *)storage->data)[at] = value;
      break;
    case MV_I64:
      ((int64_t *)storage->data)[at] = pv_whole(value, INT64_MIN, INT64_MAX);
      break;
    case MV_I32:
      ((int32_t *)storage->data)[at] = (int32_t)pv_whole(value, INT32_MIN, INT32_MAX);
      break;
    default:
      ((uint8_t *)storage->data)[at] = (uint8_t)pv_whole(value, 0, UINT8_MAX);
      break;
  }
}

static void pv_push_element(lua_State *L, const pv_storage *storage, int64_t at) {
  if (storage->dtype == MV_I64)
    pv_push_integer(L, ((const int64_t *)storage->data)[at]);
  else if (pv_is_integral(storage->dtype))
    pv_push_integer(L, (int64_t)pv_element(storage, at));
  else
    lua_pushnumber(L, pv_element(storage, at));
}

/* Stores the number at `index` in the element. */
static void pv_take_element(lua_State *L, int index, pv_storage *storage, int64_t at) {
#if LUA_VERSION_NUM >= 503
  if (storage->dtype == MV_I64 && lua_isinteger(L, index)) {
    ((int64_t *)storage->data)[at] = lua_tointeger(L, index);
    return;
  }
#endif
  pv_set_element(storage, at, pv_check_number(L, index));
}

/* ------------------------------------------------------------------ storages */

static mv_status pv_memory_of(mv_dtype dtype, int64_t count, mv_tensor *tensor, void **data) {
  uint64_t ignored;
  mv_status status = mv_tensor_create(dtype, &count, 1, tensor);
  if (status == MV_OK) status = mv_tensor_data(*tensor, data, &ignored, &dtype);
  return status;
}

/* A number as an argument: truncated towards zero. */
static int64_t pv_check_whole(lua_State *L, int index) {
  return pv_whole(pv_check_number(L, index), INT64_MIN / 2, INT64_MAX / 2);
}

static int64_t pv_bytes(mv_dtype dtype, int64_t count) { return count * pv_element_size(dtype); }

/* Changes the number of elements; new ones are zeros. */
static void pv_storage_grow(lua_State *L, pv_storage *storage, int64_t count) {
  mv_tensor tensor = 0;
  void *data = NULL;
  if (count < 0 || count > INT64_MAX / 16) pv_fail(L, "a storage can't have %" PRId64 " elements", count);
  pv_account(L, pv_bytes(storage->dtype, count));
  if (pv_memory_of(storage->dtype, count, &tensor, &data) != MV_OK) pv_fail(L, "%s", mv_last_error());
  const int64_t kept = count < storage->count ? count : storage->count;
  if (kept > 0) memcpy(data, storage->data, (size_t)pv_bytes(storage->dtype, kept));
  if (storage->tensor) mv_tensor_free(storage->tensor);
  pv_bytes_alive += pv_bytes(storage->dtype, count - storage->count);
  storage->tensor = tensor;
  storage->data = data;
  storage->count = count;
}

static void pv_storage_release(pv_storage *storage) {
  if (!storage || --storage->holders > 0) return;
  if (storage->tensor) mv_tensor_free(storage->tensor);
  pv_discount(pv_bytes(storage->dtype, storage->count));
  free(storage);
}

/* Pushes a value for the storage, or for a new one. */
static pv_storage *pv_push_storage(lua_State *L, mv_dtype dtype, pv_storage *storage) {
  pv_storage_value *value = (pv_storage_value *)lua_newuserdata(L, sizeof *value);
  value->kind = pv_storage_keys;
  value->storage = storage;
  pv_registry(L, &pv_storage_keys[dtype]);
  lua_setmetatable(L, -2);
  if (!storage) {
    storage = (pv_storage *)calloc(1, sizeof *storage);
    if (!storage) pv_fail(L, "out of memory");
    storage->dtype = dtype;
    value->storage = storage;
  }
  ++storage->holders;
  return storage;
}

static pv_storage *pv_is_storage(lua_State *L, int index) {
  if (lua_type(L, index) != LUA_TUSERDATA || pv_length(L, index) != sizeof(pv_storage_value)) return NULL;
  const pv_storage_value *value = (const pv_storage_value *)lua_touserdata(L, index);
  return value->kind == pv_storage_keys ? value->storage : NULL;
}

static pv_storage *pv_check_storage(lua_State *L, int index) {
  pv_storage *storage = pv_is_storage(L, index);
  if (!storage) pv_fail(L, "argument #%d is a %s, a torch Storage is expected", index, luaL_typename(L, index));
  return storage;
}

static int pv_storage_ends(lua_State *L) {
  if (!pv_is_storage(L, 1)) return 0;
  pv_storage_value *value = (pv_storage_value *)lua_touserdata(L, 1);
  pv_storage_release(value->storage);
  value->storage = NULL;
  value->kind = NULL;
  return 0;
}

static mv_dtype pv_check_dtype(lua_State *L, int index) {
  const int64_t dtype = pv_check_whole(L, index);
  if (dtype < MV_F32 || dtype > MV_U8) pv_fail(L, "there is no tensor of dtype %" PRId64, dtype);
  return (mv_dtype)dtype;
}

/* storage(dtype, count) */
static int pv_storage_new(lua_State *L) {
  const mv_dtype dtype = pv_check_dtype(L, 1);
  const int64_t count = lua_isnoneornil(L, 2) ? 0 : pv_check_whole(L, 2);
  pv_storage *storage = pv_push_storage(L, dtype, NULL);
  if (count != 0) pv_storage_grow(L, storage, count);
  return 1;
}

/* borrow(handle): a storage in a C tensor's memory, which takes over the handle. Other storages may share the
 * memory. */
static int pv_storage_borrow(lua_State *L) {
  const mv_tensor tensor = (mv_tensor)pv_check_number(L, 1);
  void *data = NULL;
  uint64_t count = 0;
  mv_dtype dtype = MV_RAW;
  if (mv_tensor_data(tensor, &data, &count, &dtype) != MV_OK) pv_fail(L, "%s", mv_last_error());
  if (dtype < MV_F32 || dtype > MV_U8) pv_fail(L, "there is no storage of dtype %d", (int)dtype);
  pv_account(L, pv_bytes(dtype, (int64_t)count));
  pv_storage *storage = pv_push_storage(L, dtype, NULL);
  storage->tensor = tensor;
  storage->data = data;
  storage->count = (int64_t)count;
  pv_bytes_alive += pv_bytes(dtype, storage->count);
  return 1;
}

static int pv_storage_resize(lua_State *L) {
  pv_storage_grow(L, pv_check_storage(L, 1), pv_check_whole(L, 2));
  lua_settop(L, 1);
  return 1;
}

static int pv_storage_size(lua_State *L) {
  pv_push_integer(L, pv_check_storage(L, 1)->count);
  return 1;
}

/* bytes(storage): its memory as a string */
static int pv_storage_bytes(lua_State *L) {
  const pv_storage *storage = pv_check_storage(L, 1);
  lua_pushlstring(L, storage->count ? (const char *)storage->data : "",
                  (size_t)pv_bytes(storage->dtype, storage->count));
  return 1;
}

/* set_bytes(storage, string): copies a string of the same size into its memory */
static int pv_storage_set_bytes(lua_State *L) {
  pv_storage *storage = pv_check_storage(L, 1);
  size_t length;
  const char *bytes = luaL_checklstring(L, 2, &length);
  const int64_t expected = pv_bytes(storage->dtype, storage->count);
  if ((int64_t)length != expected) return pv_fail(L, "%zu bytes given, the storage has %" PRId64, length, expected);
  if (length > 0) memcpy(storage->data, bytes, length);
  lua_settop(L, 1);
  return 1;
}

static int64_t pv_storage_at(lua_State *L, const pv_storage *storage) {
  const int64_t at = pv_check_whole(L, 2) - 1;
  if (at < 0 || at >= storage->count)
    pv_fail(L, "index out of range: %" PRId64 " of a storage of %" PRId64 " elements", at + 1, storage->count);
  return at;
}

/* upvalue 1: the methods */
static int pv_storage_index(lua_State *L) {
  lua_settop(L, 2);
  if (lua_type(L, 2) != LUA_TNUMBER) {
    lua_rawget(L, lua_upvalueindex(1));
    return 1;
  }
  const pv_storage *storage = pv_check_storage(L, 1);
  pv_push_element(L, storage, pv_storage_at(L, storage));
  return 1;
}

static int pv_storage_newindex(lua_State *L) {
  pv_storage *storage = pv_check_storage(L, 1);
  pv_take_element(L, 3, storage, pv_storage_at(L, storage));
  return 0;
}

#endif
