/* Arithmetic on Torch's tensors. It uses the functions of C tensors, for which strided tensors are copied to
 * contiguous memory and their results copied back, and loops over elements if there is no such function. */
#ifndef POLYVERSO_SWIG_LUA_STRIDED_MATH_H
#define POLYVERSO_SWIG_LUA_STRIDED_MATH_H

#include <math.h>
#include <time.h>

#include "lua_strided.h"

/* ------------------------------------------------------------------ iterating over the elements, row by row */

typedef struct pv_walk {
  const pv_strided *tensor;
  int64_t at, left;
  int64_t counter[MV_MAX_DIMS];
} pv_walk;

static pv_walk pv_walk_over(const pv_strided *tensor) {
  pv_walk walk = {tensor, tensor->offset, pv_strided_count(tensor), {0}};
  return walk;
}

static void pv_walk_on(pv_walk *walk) {
  const pv_strided *tensor = walk->tensor;
  --walk->left;
  for (int d = tensor->dims; d-- > 0;) {
    walk->at += tensor->stride[d];
    if (++walk->counter[d] < tensor->size[d]) return;
    walk->at -= tensor->size[d] * tensor->stride[d];
    walk->counter[d] = 0;
  }
}

/* Copies `count` elements at a stride into a contiguous row, or back. */
static void pv_transfer_run(char *element, int64_t step, char *row, int64_t count, size_t size, int spread) {
  switch (size) {
    case 8:
      for (int64_t i = 0; i < count; ++i, element += step, row += 8)
        memcpy(spread ? element : row, spread ? row : element, 8);
      break;
    case 4:
      for (int64_t i = 0; i < count; ++i, element += step, row += 4)
        memcpy(spread ? element : row, spread ? row : element, 4);
      break;
    default:
      for (int64_t i = 0; i < count; ++i, element += step, ++row) *(spread ? element : row) = *(spread ? row : element);
  }
}

/* Copies the tensor's elements into a contiguous row, or back. */
static void pv_transfer(const pv_strided *tensor, char *row, int spread) {
  const size_t size = (size_t)pv_element_size(tensor->dtype);
  if (tensor->dims == 0) return;
  const int last = tensor->dims - 1;
  const int64_t count = tensor->size[last], step = tensor->stride[last] * (int64_t)size;
  pv_strided outer = *tensor;
  outer.size[last] = 1;
  for (pv_walk walk = pv_walk_over(&outer); walk.left > 0; pv_walk_on(&walk), row += count * (int64_t)size)
    pv_transfer_run((char *)tensor->storage->data + walk.at * (int64_t)size, step, row, count, size, spread);
}

/* ------------------------------------------------------------------ operands and results */

enum { kPvHandles = 10 };

/* The C tensors of one call, which pv_end() frees, and its status. */
typedef struct pv_call {
  mv_status status;
  int count;
  mv_tensor handles[kPvHandles];
} pv_call;

static mv_tensor pv_hold_tensor(pv_call *call, mv_tensor tensor) {
  if (tensor) call->handles[call->count++] = tensor;
  return tensor;
}

static int pv_is_held_by_storage(const pv_strided *tensor) {
  return pv_strided_end(tensor) <= (tensor->storage ? tensor->storage->count : 0);
}

static const pv_call kPvNoCall = {MV_OK, 0, {0}};

/* The tensor's elements as a C tensor of one dimension: the same memory if it is contiguous, else a copy. */
static mv_tensor pv_flat(pv_call *call, const pv_strided *tensor) {
  const int64_t count = pv_strided_count(tensor);
  mv_tensor flat = 0;
  void *data = NULL;
  if (call->status != MV_OK) return 0;
  if (tensor->storage && tensor->storage->tensor && pv_is_contiguous(tensor)) {
    call->status =
        mv_tensor_slice(tensor->storage->tensor, count ? tensor->offset : 0, count ? tensor->offset + count : 0, &flat);
    return pv_hold_tensor(call, flat);
  }
  call->status = pv_memory_of(tensor->dtype, count, &flat, &data);
  if (call->status == MV_OK) pv_transfer(tensor, (char *)data, 0);
  return pv_hold_tensor(call, flat);
}

/* Copies the result back to the tensor, after it was written to the C tensor of pv_flat(). */
static void pv_spread(pv_call *call, const pv_strided *tensor, mv_tensor flat) {
  void *data = NULL;
  uint64_t count;
  mv_dtype dtype;
  if (call->status != MV_OK || pv_is_contiguous(tensor)) return;
  call->status = mv_tensor_data(flat, &data, &count, &dtype);
  if (call->status == MV_OK) pv_transfer(tensor, (char *)data, 1);
}

/* Frees the handles and raises the error, if there was one. */
static void pv_end(lua_State *L, pv_call *call) {
  char text[PV_MESSAGE_SIZE] = "";
  if (call->status != MV_OK) snprintf(text, sizeof text, "%s", mv_last_error());
  while (call->count > 0) mv_tensor_free(call->handles[--call->count]);
  if (call->status != MV_OK) pv_fail(L, "%s", text);
}

/* Ends a function whose result, the argument at `index`, has been computed into `flat`. */
static int pv_finish(lua_State *L, pv_call *call, int index, const pv_strided *to, mv_tensor flat) {
  pv_spread(call, to, flat);
  pv_end(L, call);
  lua_pushvalue(L, index);
  return 1;
}

/* A tensor as an argument; checks that its storage still holds all of it. */
static const pv_strided *pv_operand(lua_State *L, int index) {
  const pv_strided *tensor = pv_check_strided(L, index);
  if (!pv_is_held_by_storage(tensor)) pv_fail(L, "the tensor's storage was resized and is now too short for it");
  return tensor;
}

static void pv_describe_size(const pv_strided *tensor, char text[128]) {
  size_t used = 0;
  for (int d = 0; d < tensor->dims && used < 100; ++d)
    used += (size_t)snprintf(text + used, 128 - used, "%s%" PRId64, d ? " x " : "", tensor->size[d]);
  text[used] = 0;
}

/* A further operand, with the same number of elements. */
static const pv_strided *pv_operand_like(lua_State *L, int index, const pv_strided *first) {
  const pv_strided *tensor = pv_operand(L, index);
  if (pv_strided_count(tensor) != pv_strided_count(first)) {
    char a[128], b[128];
    pv_describe_size(first, a);
    pv_describe_size(tensor, b);
    pv_fail(L,
            "inconsistent tensor size, expected [%s] and [%s] to have the same number of elements, "
            "but got %" PRId64 " and %" PRId64,
            a, b, pv_strided_count(first), pv_strided_count(tensor));
  }
  return tensor;
}

/* A number for a tensor of this dtype, converted as in C. */
static double pv_value_for(lua_State *L, int index, mv_dtype dtype) {
  const double value = pv_check_number(L, index);
  return pv_is_integral(dtype) ? (double)pv_whole(value, INT64_MIN, INT64_MAX) : value;
}

/* ------------------------------------------------------------------ functions of the C tensors */

/* copy(to, from) */
static int pv_math_copy(lua_State *L) {
  const pv_strided *to = pv_operand(L, 1), *from = pv_operand_like(L, 2, to);
  pv_call call = kPvNoCall;
  const mv_tensor source = pv_flat(&call, from), target = pv_flat(&call, to);
  mv_tensor result;
  if (call.status == MV_OK) call.status = mv_tensor_copy(source, target, &result);
  return pv_finish(L, &call, 1, to, target);
}

/* fill(tensor, value) */
static int pv_math_fill(lua_State *L) {
  const pv_strided *to = pv_operand(L, 1);
  pv_call call = kPvNoCall;
  const double value = pv_check_number(L, 2);
  const mv_tensor target = pv_flat(&call, to);
  if (call.status == MV_OK) call.status = mv_tensor_fill(target, value);
  return pv_finish(L, &call, 1, to, target);
}

/* range(tensor, start, step) */
static int pv_math_range(lua_State *L) {
  const pv_strided *to = pv_operand(L, 1);
  pv_call call = kPvNoCall;
  const double start = pv_check_number(L, 2), step = pv_check_number(L, 3);
  const mv_tensor target = pv_flat(&call, to);
  if (call.status == MV_OK) call.status = mv_tensor_range(target, start, step);
  return pv_finish(L, &call, 1, to, target);
}

/* random(tensor, "uniform" or "normal", seed, stream, a, b): different numbers for every stream */
static int pv_math_random(lua_State *L) {
  const pv_strided *to = pv_operand(L, 1);
  pv_call call = kPvNoCall;
  const int is_normal = *luaL_checkstring(L, 2) == 'n';
  const uint64_t seed = (uint64_t)pv_check_whole(L, 3);
  const uint64_t stream = (uint64_t)pv_check_whole(L, 4) * UINT64_C(0x9E3779B97F4A7C15);
  const int64_t key = (int64_t)(seed ^ stream);
  const double a = pv_check_number(L, 5), b = pv_check_number(L, 6);
  const mv_tensor target = pv_flat(&call, to);
  if (call.status == MV_OK)
    call.status = is_normal ? mv_tensor_normal(target, key, a, b) : mv_tensor_uniform(target, key, a, b);
  return pv_finish(L, &call, 1, to, target);
}

/* unary(op, to, from) */
static int pv_math_unary(lua_State *L) {
  const int32_t op = (int32_t)pv_check_whole(L, 1);
  const pv_strided *to = pv_operand(L, 2), *from = pv_operand_like(L, 3, to);
  pv_call call = kPvNoCall;
  const mv_tensor source = pv_flat(&call, from), target = pv_flat(&call, to);
  mv_tensor result;
  if (call.status == MV_OK) call.status = mv_tensor_unary(op, source, target, &result);
  return pv_finish(L, &call, 2, to, target);
}

/* binary(op, to, a, b) */
static int pv_math_binary(lua_State *L) {
  const int32_t op = (int32_t)pv_check_whole(L, 1);
  const pv_strided *to = pv_operand(L, 2), *a = pv_operand_like(L, 3, to), *b = pv_operand_like(L, 4, to);
  pv_call call = kPvNoCall;
  const mv_tensor left = pv_flat(&call, a), right = pv_flat(&call, b), target = pv_flat(&call, to);
  mv_tensor result;
  if (call.status == MV_OK) call.status = mv_tensor_binary(op, left, right, target, &result);
  return pv_finish(L, &call, 2, to, target);
}

/* scalar(op, to, from, value, swapped) */
static int pv_math_scalar(lua_State *L) {
  const int32_t op = (int32_t)pv_check_whole(L, 1);
  const pv_strided *to = pv_operand(L, 2), *from = pv_operand_like(L, 3, to);
  const int is_comparison = op >= MV_EQ;
  pv_call call = kPvNoCall;
  const double value = is_comparison ? pv_check_number(L, 4) : pv_value_for(L, 4, from->dtype);
  const mv_tensor source = pv_flat(&call, from), target = pv_flat(&call, to);
  mv_tensor result;
  if (call.status == MV_OK) call.status = mv_tensor_scalar(op, source, value, lua_toboolean(L, 5), target, &result);
  return pv_finish(L, &call, 2, to, target);
}

/* axpy(to, factor, from): to += factor * from */
static int pv_math_axpy(lua_State *L) {
  const pv_strided *to = pv_operand(L, 1), *from = pv_operand_like(L, 3, to);
  pv_call call = kPvNoCall;
  const double factor = pv_value_for(L, 2, to->dtype);
  const mv_tensor source = pv_flat(&call, from), target = pv_flat(&call, to);
  if (call.status == MV_OK) call.status = mv_tensor_axpy(factor, source, target);
  return pv_finish(L, &call, 1, to, target);
}

static mv_tensor pv_as_f64(pv_call *call, mv_tensor tensor) {
  mv_tensor exact = 0;
  if (call->status == MV_OK) call->status = mv_tensor_cast(tensor, MV_F64, &exact);
  return pv_hold_tensor(call, exact);
}

static mv_tensor pv_reshaped(pv_call *call, mv_tensor tensor, const int64_t *shape, int dims) {
  mv_tensor shaped = 0;
  if (call->status == MV_OK) call->status = mv_tensor_reshape(tensor, shape, (uint64_t)dims, &shaped);
  return pv_hold_tensor(call, shaped);
}

/* Reduces all elements to a number. Sums of floats are in double precision. */
static int pv_push_reduced(lua_State *L, pv_call *call, int32_t op, mv_tensor source, int is_float) {
  mv_tensor result = 0;
  double value = 0;
  int64_t integer = 0;
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  if (op == MV_SUM || op == MV_MEAN || op == MV_NORM) source = is_float ? pv_as_f64(call, source) : source;
  if (call->status == MV_OK) call->status = mv_tensor_reduce(op, source, MV_ALL_AXES, &result);
  pv_hold_tensor(call, result);
  if (call->status == MV_OK) call->status = mv_tensor_get(result, NULL, 0, &value, &integer);
  if (call->status == MV_OK) call->status = mv_tensor_describe(result, &info);
  pv_end(L, call);
  if (pv_is_integral(info.dtype))
    pv_push_integer(L, integer);
  else
    lua_pushnumber(L, value);
  return 1;
}

/* reduce(op, from): a number; reduce(op, from, dimension, to): into a tensor of length 1 in that dimension */
static int pv_math_reduce(lua_State *L) {
  const int32_t op = (int32_t)pv_check_whole(L, 1);
  const pv_strided *from = pv_operand(L, 2);
  pv_call call = kPvNoCall;
  mv_tensor reduced = 0, result;
  if (lua_isnoneornil(L, 3)) return pv_push_reduced(L, &call, op, pv_flat(&call, from), from->dtype == MV_F32);
  const int dimension = pv_check_dimension(L, 3, from);
  const pv_strided *to = pv_operand(L, 4);
  const int64_t all = -1;
  const mv_tensor source = pv_flat(&call, from), target = pv_flat(&call, to);
  const mv_tensor shaped = pv_reshaped(&call, source, from->size, from->dims);
  if (call.status == MV_OK) call.status = mv_tensor_reduce(op, shaped, dimension, &reduced);
  pv_hold_tensor(&call, reduced);
  const mv_tensor row = pv_reshaped(&call, reduced, &all, 1);
  if (call.status == MV_OK) call.status = mv_tensor_copy(row, target, &result);
  return pv_finish(L, &call, 4, to, target);
}

/* dot(a, b) */
static int pv_math_dot(lua_State *L) {
  const pv_strided *a = pv_operand(L, 1), *b = pv_operand_like(L, 2, a);
  pv_call call = kPvNoCall;
  double value = 0;
  const mv_tensor left = pv_flat(&call, a), right = pv_flat(&call, b);
  if (call.status == MV_OK) call.status = mv_tensor_dot(left, right, &value);
  pv_end(L, &call);
  lua_pushnumber(L, value);
  return 1;
}

/* equal(a, b): for tensors of one size */
static int pv_math_equal(lua_State *L) {
  const pv_strided *a = pv_operand(L, 1), *b = pv_operand_like(L, 2, a);
  pv_call call = kPvNoCall;
  int32_t close = 0;
  const mv_tensor left = pv_flat(&call, a), right = pv_flat(&call, b);
  if (call.status == MV_OK) call.status = mv_tensor_close(left, right, 0, 0, &close);
  pv_end(L, &call);
  lua_pushboolean(L, close);
  return 1;
}

static mv_tensor pv_matrix(pv_call *call, const pv_strided *tensor) {
  mv_tensor flat = pv_flat(call, tensor);
  if (pv_is_integral(tensor->dtype)) flat = pv_as_f64(call, flat);
  return pv_reshaped(call, flat, tensor->size, 2);
}

/* product(to, a, b): the product of two matrices; three tensors of two dimensions */
static int pv_math_product(lua_State *L) {
  const pv_strided *to = pv_operand(L, 1), *a = pv_operand(L, 2), *b = pv_operand(L, 3);
  pv_call call = kPvNoCall;
  mv_tensor result = 0, copied;
  const int64_t all = -1;
  if (to->dims != 2 || a->dims != 2 || b->dims != 2) return pv_fail(L, "a product of matrices needs 2D tensors");
  const mv_tensor left = pv_matrix(&call, a), right = pv_matrix(&call, b), target = pv_flat(&call, to);
  if (call.status == MV_OK) call.status = mv_tensor_matmul(left, right, 0, 0, &result);
  pv_hold_tensor(&call, result);
  const mv_tensor row = pv_reshaped(&call, result, &all, 1);
  if (call.status == MV_OK) call.status = mv_tensor_copy(row, target, &copied);
  return pv_finish(L, &call, 1, to, target);
}

/* ------------------------------------------------------------------ element by element */

static double pv_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double pv_sign(double x) { return (double)((x > 0) - (x < 0)); }
static double pv_frac(double x) { return x - trunc(x); }
static double pv_rsqrt(double x) { return 1 / sqrt(x); }

/* map(name, to, from) */
static int pv_math_map(lua_State *L) {
  static const struct {
    const char *name;
    double (*function)(double);
  } known[] = {{"sin", sin},        {"cos", cos},      {"tan", tan},
               {"asin", asin},      {"acos", acos},    {"atan", atan},
               {"sinh", sinh},      {"cosh", cosh},    {"tanh", tanh},
               {"floor", floor},    {"ceil", ceil},    {"round", round},
               {"trunc", trunc},    {"frac", pv_frac}, {"log1p", log1p},
               {"rsqrt", pv_rsqrt}, {"sign", pv_sign}, {"sigmoid", pv_sigmoid},
               {"lgamma", lgamma}};
  const char *name = luaL_checkstring(L, 1);
  const pv_strided *to = pv_operand(L, 2), *from = pv_operand_like(L, 3, to);
  for (size_t i = 0; i < sizeof known / sizeof *known; ++i) {
    if (strcmp(known[i].name, name) != 0) continue;
    pv_walk source = pv_walk_over(from);
    for (pv_walk target = pv_walk_over(to); target.left > 0; pv_walk_on(&target), pv_walk_on(&source))
      pv_set_element(to->storage, target.at, known[i].function(pv_element(from->storage, source.at)));
    lua_settop(L, 2);
    return 1;
  }
  return pv_fail(L, "unknown element-wise function %s", name);
}

/* apply(function, tensor, ...): tensor's elements = function(element, elements of up to two others ...), if that
 * returns a number. The function may do anything, even shorten a storage. */
static int pv_math_apply(lua_State *L) {
  enum { kMost = 3 };
  const pv_strided *tensors[kMost];
  pv_walk walks[kMost];
  const int count = lua_gettop(L) - 1;
  pv_check_type(L, 1, LUA_TFUNCTION);
  if (count < 1 || count > kMost) return pv_fail(L, "apply() takes one to %d tensors", kMost);
  pv_strided *shapes = (pv_strided *)lua_newuserdata(L, kMost * sizeof *shapes);
  for (int i = 0; i < count; ++i) {
    tensors[i] = i == 0 ? pv_operand(L, 2) : pv_operand_like(L, 2 + i, tensors[0]);
    shapes[i] = *tensors[i]; /* a copy: a resize by the function changes nothing here */
    walks[i] = pv_walk_over(&shapes[i]);
  }
  while (walks[0].left > 0) {
    lua_pushvalue(L, 1);
    for (int i = 0; i < count; ++i)
      pv_push_element(L, tensors[i]->storage, pv_check_inside(L, tensors[i], walks[i].at));
    lua_call(L, count, 1);
    if (lua_type(L, -1) == LUA_TNUMBER)
      pv_take_element(L, lua_gettop(L), tensors[0]->storage, pv_check_inside(L, tensors[0], walks[0].at));
    else if (!lua_isnil(L, -1))
      return pv_fail(L, "the function must return a number or nothing, not a %s", luaL_typename(L, -1));
    lua_pop(L, 1);
    for (int i = 0; i < count; ++i) pv_walk_on(&walks[i]);
  }
  lua_pushvalue(L, 2);
  return 1;
}

/* ------------------------------------------------------------------ sorting */

/* The value as a double, as an integer for exact comparison, and its position. */
typedef struct pv_key {
  double number;
  int64_t integer, at;
} pv_key;

/* NaN is the greatest. */
static int pv_order(const pv_key *a, const pv_key *b) {
  const int a_nan = a->number != a->number, b_nan = b->number != b->number;
  if (a_nan || b_nan) return a_nan - b_nan;
  if (a->number != b->number) return a->number < b->number ? -1 : 1;
  return (a->integer > b->integer) - (a->integer < b->integer);
}

static int pv_ascending(const void *a, const void *b) {
  const pv_key *left = (const pv_key *)a, *right = (const pv_key *)b;
  const int order = pv_order(left, right);
  return order ? order : (left->at > right->at) - (left->at < right->at);
}

static int pv_descending(const void *a, const void *b) {
  const pv_key *left = (const pv_key *)a, *right = (const pv_key *)b;
  const int order = pv_order(right, left);
  return order ? order : (left->at > right->at) - (left->at < right->at);
}

static pv_key pv_key_of(const pv_storage *storage, int64_t at, int64_t position) {
  const pv_key key = {pv_element(storage, at), storage->dtype == MV_I64 ? ((const int64_t *)storage->data)[at] : 0,
                      position};
  return key;
}

/* sort(values, indices, dimension, descending): in place, and the original positions */
static int pv_math_sort(lua_State *L) {
  const pv_strided *values = pv_operand(L, 1), *indices = pv_operand_like(L, 2, values);
  const int dimension = pv_check_dimension(L, 3, values);
  const int64_t length = values->size[dimension];
  const int64_t value_step = values->stride[dimension], index_step = indices->stride[dimension];
  if (indices->dims != values->dims || indices->dtype != MV_I64) return pv_fail(L, "the indices must be a LongTensor");
  pv_key *keys = (pv_key *)lua_newuserdata(L, (size_t)length * sizeof *keys);
  pv_strided value_lines = *values, index_lines = *indices;
  value_lines.size[dimension] = index_lines.size[dimension] = 1;
  pv_walk line = pv_walk_over(&index_lines);
  for (pv_walk walk = pv_walk_over(&value_lines); walk.left > 0; pv_walk_on(&walk), pv_walk_on(&line)) {
    for (int64_t i = 0; i < length; ++i) keys[i] = pv_key_of(values->storage, walk.at + i * value_step, i);
    qsort(keys, (size_t)length, sizeof *keys, lua_toboolean(L, 4) ? pv_descending : pv_ascending);
    for (int64_t i = 0; i < length; ++i) {
      if (values->dtype == MV_I64)
        ((int64_t *)values->storage->data)[walk.at + i * value_step] = keys[i].integer;
      else
        pv_set_element(values->storage, walk.at + i * value_step, keys[i].number);
      ((int64_t *)indices->storage->data)[line.at + i * index_step] = keys[i].at + 1;
    }
  }
  lua_settop(L, 2);
  return 2;
}

/* handle(tensor): a C tensor that shares the elements' memory, which must be contiguous */
static int pv_math_handle(lua_State *L) {
  const pv_strided *tensor = pv_operand(L, 1);
  pv_call call = kPvNoCall;
  if (!pv_is_contiguous(tensor)) return pv_fail(L, "a non-contiguous tensor is not one block of memory: use contiguous()");
  const mv_tensor flat = pv_flat(&call, tensor);
  if (call.status != MV_OK) pv_end(L, &call);
  pv_push_integer(L, flat);
  return 1;
}

/* clock(): seconds since an arbitrary moment */
static int pv_strided_clock(lua_State *L) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  lua_pushnumber(L, (lua_Number)now.tv_sec + (lua_Number)now.tv_nsec * 1e-9);
  return 1;
}

/* ------------------------------------------------------------------ the module's table */

/* strided(): a table of all these functions */
static int pv_strided_module(lua_State *L) {
  static const luaL_Reg functions[] = {{"types", pv_strided_types},
                                       {"fail", pv_strided_fail},
                                       {"clock", pv_strided_clock},
                                       {"storage", pv_storage_new},
                                       {"borrow", pv_storage_borrow},
                                       {"resize", pv_storage_resize},
                                       {"count", pv_storage_size},
                                       {"bytes", pv_storage_bytes},
                                       {"set_bytes", pv_storage_set_bytes},
                                       {"same", pv_storage_same},
                                       {"tensor", pv_strided_new},
                                       {"shape", pv_strided_shape},
                                       {"sizes", pv_strided_sizes},
                                       {"storage_of", pv_strided_storage},
                                       {"dim", pv_strided_dim},
                                       {"elements", pv_strided_elements},
                                       {"contiguous", pv_strided_contiguous},
                                       {"size", pv_strided_size},
                                       {"stride", pv_strided_stride},
                                       {"address", pv_strided_address},
                                       {"select", pv_strided_select},
                                       {"copy", pv_math_copy},
                                       {"fill", pv_math_fill},
                                       {"range", pv_math_range},
                                       {"random", pv_math_random},
                                       {"unary", pv_math_unary},
                                       {"binary", pv_math_binary},
                                       {"scalar", pv_math_scalar},
                                       {"axpy", pv_math_axpy},
                                       {"reduce", pv_math_reduce},
                                       {"dot", pv_math_dot},
                                       {"equal", pv_math_equal},
                                       {"product", pv_math_product},
                                       {"map", pv_math_map},
                                       {"apply", pv_math_apply},
                                       {"sort", pv_math_sort},
                                       {"handle", pv_math_handle}};
  enum { kCount = sizeof functions / sizeof *functions };
  lua_createtable(L, 0, kCount);
  for (int i = 0; i < kCount; ++i) {
    lua_pushcfunction(L, functions[i].func);
    lua_setfield(L, -2, functions[i].name);
  }
  return 1;
}

#endif
