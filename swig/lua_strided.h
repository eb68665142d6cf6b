/* Torch's tensors: views of a storage with an offset, sizes and strides. lua/compat/torch defines their methods;
 * this file has the parts that Lua can't express, or not fast enough. */
#ifndef POLYVERSO_SWIG_LUA_STRIDED_H
#define POLYVERSO_SWIG_LUA_STRIDED_H

#include "lua_storage.h"

/* The Lua value of a tensor; `kind` distinguishes it from other libraries' userdata. */
typedef struct pv_strided {
  const void *kind;
  pv_storage *storage; /* NULL: a tensor that never had a storage */
  mv_dtype dtype;
  int dims; /* 0: no elements */
  int64_t offset;
  int64_t size[MV_MAX_DIMS];
  int64_t stride[MV_MAX_DIMS];
} pv_strided;

/* Also the keys of the metatables in Lua's registry, by dtype. */
static const char pv_strided_keys[kPvDtypes];

/* ------------------------------------------------------------------ tensors */

static pv_strided *pv_is_strided(lua_State *L, int index) {
  if (lua_type(L, index) != LUA_TUSERDATA || pv_length(L, index) != sizeof(pv_strided)) return NULL;
  pv_strided *tensor = (pv_strided *)lua_touserdata(L, index);
  return tensor->kind == pv_strided_keys ? tensor : NULL;
}

static pv_strided *pv_check_strided(lua_State *L, int index) {
  pv_strided *tensor = pv_is_strided(L, index);
  if (!tensor) pv_fail(L, "argument #%d is a %s, a torch Tensor is expected", index, luaL_typename(L, index));
  return tensor;
}

static int64_t pv_strided_count(const pv_strided *tensor) {
  int64_t count = tensor->dims > 0;
  for (int d = 0; d < tensor->dims; ++d) count *= tensor->size[d];
  return count;
}

static int pv_is_contiguous(const pv_strided *tensor) {
  int64_t expected = 1;
  for (int d = tensor->dims; d-- > 0;) {
    if (tensor->size[d] == 1) continue;
    if (tensor->stride[d] != expected) return 0;
    expected *= tensor->size[d];
  }
  return 1;
}

/* The index after the last element in the storage. */
static int64_t pv_strided_end(const pv_strided *tensor) {
  int64_t last = tensor->offset;
  if (pv_strided_count(tensor) == 0) return 0;
  for (int d = 0; d < tensor->dims; ++d) last += (tensor->size[d] - 1) * tensor->stride[d];
  return last + 1;
}

static pv_strided *pv_push_strided(lua_State *L, mv_dtype dtype, pv_storage *storage) {
  pv_strided *tensor = (pv_strided *)lua_newuserdata(L, sizeof *tensor);
  memset(tensor, 0, sizeof *tensor);
  tensor->kind = pv_strided_keys;
  tensor->dtype = dtype;
  tensor->storage = storage;
  if (storage) ++storage->holders;
  pv_registry(L, &pv_strided_keys[dtype]);
  lua_setmetatable(L, -2);
  return tensor;
}

static int pv_strided_ends(lua_State *L) {
  pv_strided *tensor = pv_is_strided(L, 1);
  if (!tensor) return 0;
  pv_storage_release(tensor->storage);
  tensor->storage = NULL;
  tensor->kind = NULL;
  return 0;
}

/* tensor(dtype): a tensor without dimensions */
static int pv_strided_new(lua_State *L) {
  pv_push_strided(L, pv_check_dtype(L, 1), NULL);
  return 1;
}

/* table[1 ..] into lengths, none negative */
static int pv_check_lengths(lua_State *L, int index, const char *what, int64_t *lengths) {
  pv_check_type(L, index, LUA_TTABLE);
  const size_t dims = pv_length(L, index);
  if (dims > MV_MAX_DIMS) pv_fail(L, "a tensor of %d dimensions: at most %d are supported", (int)dims, MV_MAX_DIMS);
  for (size_t d = 0; d < dims; ++d) {
    lua_rawgeti(L, index, (int)d + 1);
    if (lua_type(L, -1) != LUA_TNUMBER) pv_fail(L, "%s %d is a %s", what, (int)d + 1, luaL_typename(L, -1));
    const double length = lua_tonumber(L, -1);
    if (!(length >= 0 && length < 4503599627370496.0)) pv_fail(L, "%s %d is %g", what, (int)d + 1, length);
    lengths[d] = (int64_t)length;
    lua_pop(L, 1);
  }
  return (int)dims;
}

/* Contiguous strides. Raises an error if no memory can hold that many elements. */
static void pv_pack(lua_State *L, pv_strided *shape) {
  double count = 1;
  int64_t step = 1;
  for (int d = 0; d < shape->dims; ++d) count *= (double)shape->size[d];
  if (count > 1e15) pv_fail(L, "a tensor of %g elements is too large", count);
  for (int d = shape->dims; d-- > 0; step *= shape->size[d]) shape->stride[d] = step;
}

/* The length that the storage must have; raises an error if none can be that long. */
static int64_t pv_reach(lua_State *L, const pv_strided *shape) {
  double count = 1, reach = (double)shape->offset + 1;
  for (int d = 0; d < shape->dims; ++d) {
    count *= (double)shape->size[d];
    reach += (double)shape->size[d] * (double)shape->stride[d];
  }
  if (count > 1e15 || reach > 1e15) pv_fail(L, "a tensor of %g elements is too large", count);
  return pv_strided_end(shape);
}

/* shape(tensor, storage, offset, sizes, strides): makes it this view of the storage; nil = its own storage, or a new
 * one; no strides = contiguous. A storage that is too short grows. */
static int pv_strided_shape(lua_State *L) {
  pv_strided *tensor = pv_check_strided(L, 1), shape = *tensor;
  pv_storage *storage = lua_isnoneornil(L, 2) ? tensor->storage : pv_check_storage(L, 2);
  if (storage && storage->dtype != tensor->dtype) return pv_fail(L, "the storage and the tensor have different types");
  const double offset = lua_isnoneornil(L, 3) ? (double)tensor->offset + 1 : pv_check_number(L, 3);
  if (!(offset >= 1 && offset < 1e15)) return pv_fail(L, "storage offset %g: must be at least 1", offset);
  shape.offset = (int64_t)offset - 1;
  shape.dims = pv_check_lengths(L, 4, "size", shape.size);
  for (int d = 0; d < shape.dims; ++d)
    if (shape.size[d] == 0) shape.dims = 0;
  if (lua_isnoneornil(L, 5))
    pv_pack(L, &shape);
  else if (pv_check_lengths(L, 5, "stride", shape.stride) < shape.dims)
    return pv_fail(L, "fewer strides than sizes");
  const int64_t reach = pv_reach(L, &shape);
  if (!storage && reach > 0) {
    storage = pv_push_storage(L, tensor->dtype, NULL);
    pv_storage_grow(L, storage, reach);
  } else if (storage && reach > storage->count) {
    pv_storage_grow(L, storage, reach);
  }
  if (storage) ++storage->holders;
  pv_storage_release(tensor->storage);
  *tensor = shape;
  tensor->storage = storage;
  lua_settop(L, 1);
  return 1;
}

static void pv_push_lengths(lua_State *L, const int64_t *lengths, int dims) {
  lua_createtable(L, dims, 0);
  for (int d = 0; d < dims; ++d) {
    pv_push_integer(L, lengths[d]);
    lua_rawseti(L, -2, d + 1);
  }
}

/* sizes(tensor): sizes, strides, offset */
static int pv_strided_sizes(lua_State *L) {
  const pv_strided *tensor = pv_check_strided(L, 1);
  pv_push_lengths(L, tensor->size, tensor->dims);
  pv_push_lengths(L, tensor->stride, tensor->dims);
  pv_push_integer(L, tensor->offset + 1);
  return 3;
}

static int pv_strided_storage(lua_State *L) {
  const pv_strided *tensor = pv_check_strided(L, 1);
  if (!tensor->storage) return 0;
  pv_push_storage(L, tensor->dtype, tensor->storage);
  return 1;
}

static int pv_strided_dim(lua_State *L) {
  pv_push_integer(L, pv_check_strided(L, 1)->dims);
  return 1;
}

static int pv_strided_elements(lua_State *L) {
  pv_push_integer(L, pv_strided_count(pv_check_strided(L, 1)));
  return 1;
}

static int pv_strided_contiguous(lua_State *L) {
  lua_pushboolean(L, pv_is_contiguous(pv_check_strided(L, 1)));
  return 1;
}

/* A dimension as an argument, from 0. */
static int pv_check_dimension(lua_State *L, int index, const pv_strided *tensor) {
  const double dimension = pv_check_number(L, index);
  if (!(dimension >= 1 && dimension <= tensor->dims))
    pv_fail(L, "dimension %g out of range of %dD tensor", dimension, tensor->dims);
  return (int)dimension - 1;
}

/* size(tensor, dimension), stride(tensor, dimension) */
static int pv_strided_size(lua_State *L) {
  const pv_strided *tensor = pv_check_strided(L, 1);
  pv_push_integer(L, tensor->size[pv_check_dimension(L, 2, tensor)]);
  return 1;
}

static int pv_strided_stride(lua_State *L) {
  const pv_strided *tensor = pv_check_strided(L, 1);
  pv_push_integer(L, tensor->stride[pv_check_dimension(L, 2, tensor)]);
  return 1;
}

/* same(a, b): whether two tensors, or storages, share their memory */
static int pv_storage_same(lua_State *L) {
  const pv_strided *a = pv_is_strided(L, 1), *b = pv_is_strided(L, 2);
  const pv_storage *first = a ? a->storage : pv_check_storage(L, 1);
  lua_pushboolean(L, first == (b ? b->storage : pv_check_storage(L, 2)) && first != NULL);
  return 1;
}

/* address(tensor or storage): the address of its first element */
static int pv_strided_address(lua_State *L) {
  const pv_strided *tensor = pv_is_strided(L, 1);
  const pv_storage *storage = tensor ? tensor->storage : pv_check_storage(L, 1);
  const int64_t offset = tensor ? tensor->offset * pv_element_size(tensor->dtype) : 0;
  pv_push_integer(L, storage ? (int64_t)(intptr_t)storage->data + offset : 0);
  return 1;
}

/* ------------------------------------------------------------------ indexing */

/* A position along a dimension, from 0; negative ones count from its end. */
static int64_t pv_position(lua_State *L, double position, int64_t length) {
  const double at = position < 0 ? (double)length + position : position - 1;
  if (!(at >= 0 && at < (double)length))
    pv_fail(L, "index out of range: %g in a dimension of size %" PRId64, position, length);
  return (int64_t)at;
}

static int64_t pv_check_inside(lua_State *L, const pv_strided *tensor, int64_t at) {
  if (!tensor->storage || at >= tensor->storage->count)
    pv_fail(L, "the tensor's storage was resized and is now too short for it");
  return at;
}

/* Pushes the value at a position of a dimension: a number, or a tensor with one dimension less. */
static int pv_push_select(lua_State *L, const pv_strided *tensor, int dimension, int64_t at) {
  const int64_t offset = tensor->offset + at * tensor->stride[dimension];
  if (tensor->dims == 1) {
    pv_push_element(L, tensor->storage, pv_check_inside(L, tensor, offset));
    return 1;
  }
  pv_strided *part = pv_push_strided(L, tensor->dtype, tensor->storage);
  part->offset = offset;
  for (int d = 0; d < tensor->dims; ++d) {
    if (d == dimension) continue;
    part->size[part->dims] = tensor->size[d];
    part->stride[part->dims++] = tensor->stride[d];
  }
  return 1;
}

static const pv_strided *pv_check_filled(lua_State *L, int index) {
  const pv_strided *tensor = pv_check_strided(L, index);
  if (tensor->dims == 0) pv_fail(L, "empty tensor: it has no dimension to index");
  return tensor;
}

/* select(tensor, dimension, position) */
static int pv_strided_select(lua_State *L) {
  const pv_strided *tensor = pv_check_filled(L, 1);
  const int dimension = pv_check_dimension(L, 2, tensor);
  return pv_push_select(L, tensor, dimension, pv_position(L, pv_check_number(L, 3), tensor->size[dimension]));
}

/* upvalue 1: the methods; 2: a function (tensor, key) that returns the value */
static int pv_strided_index(lua_State *L) {
  lua_settop(L, 2); /* it may be called by name, with any arguments */
  if (lua_type(L, 2) == LUA_TSTRING) {
    lua_rawget(L, lua_upvalueindex(1));
    return 1;
  }
  if (lua_type(L, 2) == LUA_TNUMBER) {
    const pv_strided *tensor = pv_check_filled(L, 1);
    return pv_push_select(L, tensor, 0, pv_position(L, lua_tonumber(L, 2), tensor->size[0]));
  }
  lua_pushvalue(L, lua_upvalueindex(2));
  lua_insert(L, 1);
  lua_call(L, 2, 1);
  return 1;
}

/* upvalue 1: a function (tensor, key, value) that stores the value */
static int pv_strided_newindex(lua_State *L) {
  lua_settop(L, 3);
  if (lua_type(L, 2) == LUA_TNUMBER && lua_type(L, 3) == LUA_TNUMBER) {
    const pv_strided *tensor = pv_check_filled(L, 1);
    if (tensor->dims == 1) {
      const int64_t at = tensor->offset + pv_position(L, lua_tonumber(L, 2), tensor->size[0]) * tensor->stride[0];
      pv_take_element(L, 3, tensor->storage, pv_check_inside(L, tensor, at));
      return 0;
    }
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 3, 0);
  return 0;
}

/* ------------------------------------------------------------------ metatables */

static void pv_set_closure(lua_State *L, int metatable, const char *name, lua_CFunction function, int upvalues) {
  lua_pushcclosure(L, function, upvalues);
  lua_setfield(L, metatable, name);
}

static void pv_register(lua_State *L, const char *key, int metatable) {
  lua_pushlightuserdata(L, (void *)key);
  lua_pushvalue(L, metatable);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

/* types(dtype, tensor's metatable, storage's metatable, index, newindex) */
static int pv_strided_types(lua_State *L) {
  const mv_dtype dtype = pv_check_dtype(L, 1);
  for (int i = 2; i <= 5; ++i) pv_check_type(L, i, i < 4 ? LUA_TTABLE : LUA_TFUNCTION);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, 4);
  pv_set_closure(L, 2, "__index", pv_strided_index, 2);
  lua_pushvalue(L, 5);
  pv_set_closure(L, 2, "__newindex", pv_strided_newindex, 1);
  pv_set_closure(L, 2, "__gc", pv_strided_ends, 0);
  lua_pushvalue(L, 3);
  pv_set_closure(L, 3, "__index", pv_storage_index, 1);
  pv_set_closure(L, 3, "__newindex", pv_storage_newindex, 0);
  pv_set_closure(L, 3, "__len", pv_storage_size, 0);
  pv_set_closure(L, 3, "__gc", pv_storage_ends, 0);
  pv_register(L, &pv_strided_keys[dtype], 2);
  pv_register(L, &pv_storage_keys[dtype], 3);
  return 0;
}

#endif
