/* Tensors, keys and values for tests of key-value stores. */
#ifndef POLYVERSO_TESTS_STORES_H
#define POLYVERSO_TESTS_STORES_H

#include "nodes.h"

static inline mv_tensor full(const int64_t* shape, uint64_t dims, mv_dtype dtype, double value) {
  mv_tensor made = 0;
  expect_ok(mv_tensor_create(dtype, shape, dims, &made));
  expect_ok(mv_tensor_fill(made, value));
  return made;
}

/** Asserts that every element of the tensor equals `value`. */
static inline void expect_all(mv_tensor tensor, double value) {
  mv_tensor least = 0, greatest = 0;
  int64_t ignored;
  double low = -1e9, high = 1e9;
  expect_ok(mv_tensor_reduce(MV_LEAST, tensor, MV_ALL_AXES, &least));
  expect_ok(mv_tensor_reduce(MV_GREATEST, tensor, MV_ALL_AXES, &greatest));
  expect_ok(mv_tensor_get(least, NULL, 0, &low, &ignored));
  expect_ok(mv_tensor_get(greatest, NULL, 0, &high, &ignored));
  if (low != value || high != value) fail_msg("%g .. %g, not %g", low, high, value);
  expect_ok(mv_tensor_free(least));
  expect_ok(mv_tensor_free(greatest));
}

static inline kv_keys number_keys(const int64_t* numbers, uint64_t count) {
  kv_keys keys = KV_KEYS_INIT;
  keys.count = count;
  keys.numbers = numbers;
  return keys;
}
static inline kv_keys name_keys(const char* const* names, uint64_t count) {
  kv_keys keys = KV_KEYS_INIT;
  keys.count = count;
  keys.names = names;
  return keys;
}
static inline kv_values values_of(const mv_tensor* tensors, uint64_t count) {
  kv_values values = KV_VALUES_INIT;
  values.count = count;
  values.tensors = tensors;
  return values;
}

static const int64_t kShape[] = {2, 3};

#endif
