/* kv_optimizer_step(): the steps of a store, for callers that keep tensors and states themselves. */
#include <string.h>

#include "nodes.h"

enum { kSteps = 5 };
static const int64_t kShape[] = {4, 3};

static mv_tensor ramp(double start, double step, mv_dtype dtype) {
  mv_tensor made = 0;
  expect_ok(mv_tensor_create(dtype, kShape, 2, &made));
  expect_ok(mv_tensor_range(made, start, step));
  return made;
}

static kv_values values_of(const mv_tensor* tensors, uint64_t count) {
  kv_values values = KV_VALUES_INIT;
  values.count = count;
  values.tensors = tensors;
  return values;
}

/** An optimizer's states for a tensor of kShape, zeros. */
static uint64_t make_states(const char* optimizer, mv_dtype dtype, mv_tensor* states) {
  int64_t count = -1, shared = -1;
  expect_ok(kv_optimizer_states(optimizer, &count, &shared));
  for (int64_t i = 0; i < count; ++i) expect_ok(mv_tensor_create(dtype, kShape, 2, &states[i]));
  if (shared > 0) expect_ok(mv_tensor_create(MV_F64, &shared, 1, &states[count++]));
  return (uint64_t)count;
}

static void free_all(mv_tensor* tensors, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) expect_ok(mv_tensor_free(tensors[i]));
}

static void expect_equal(mv_tensor a, mv_tensor b, const char* what) {
  int32_t close = 0;
  expect_ok(mv_tensor_close(a, b, 0, 0, &close));
  if (!close) fail_msg("%s: not equal", what);
}

/** Every optimizer, compared with a store of one process: the same bits. */
static void they_are_the_steps_of_a_store(void** state) {
  (void)state;
  static const char* const kOptimizers[] = {
      "mx.sgd momentum=0.9 wd=0.1", "mx.nag momentum=0.5", "mx.signum", "mx.ftml", "mx.lbsgd batch_scale=2", "mx.dcasgd momentum=0.5",
      "mx.adam learning_rate=0.1 lr_scheduler=factor step=2 factor=0.5", "mx.adagrad wd=0.1", "mx.rmsprop centered=1", "mx.adadelta",
      "mx.test", "mx.ftrl", "mx.adamax", "mx.nadam learning_rate=0.1", "mx.adamw wd=0.1", "mx.lamb wd=0.1", "mx.lion", "sgd rate=0.1", "assign"};
  for (size_t i = 0; i < sizeof kOptimizers / sizeof *kOptimizers; ++i) {
    kv_store kv = 0;
    mv_tensor value = ramp(1, -0.25, MV_F32), pulled = ramp(0, 0, MV_F32), states[9] = {0};
    const char* const name = "w";
    kv_keys key = KV_KEYS_INIT;
    key.count = 1;
    key.names = &name;
    const kv_values given = values_of(&value, 1), out = values_of(&pulled, 1);
    expect_ok(kv_create(0, "local", &kv));
    expect_ok(kv_init(kv, &key, &given));
    expect_ok(kv_set_optimizer(kv, kOptimizers[i]));
    const uint64_t count = make_states(kOptimizers[i], MV_F32, states);
    const kv_values kept = values_of(states, count);
    for (int t = 1; t <= kSteps; ++t) {
      mv_tensor gradient = ramp(0.5 * t, 0.125 - 0.05 * t, MV_F32);
      const kv_values pushed = values_of(&gradient, 1);
      expect_ok(kv_push(kv, &key, &pushed, NULL));
      expect_ok(kv_optimizer_step(kOptimizers[i], (uint64_t)t, (uint64_t)t - 1, value, gradient, count > 0 ? &kept : NULL));
      expect_ok(kv_pull(kv, &key, &out, NULL));
      expect_equal(value, pulled, kOptimizers[i]);
      expect_ok(mv_tensor_free(gradient));
    }
    free_all(states, count);
    expect_ok(mv_tensor_free(value));
    expect_ok(mv_tensor_free(pulled));
    expect_ok(kv_free(kv));
  }
}

/** A row-sparse gradient of row 2 and its dense equivalent. */
static mv_tensor one_row(void) {
  const int64_t shape[] = {1, 3}, row = 2;
  mv_tensor values = 0, made = 0;
  expect_ok(mv_tensor_create(MV_F32, shape, 2, &values));
  expect_ok(mv_tensor_range(values, 1, 1));
  expect_ok(mv_tensor_sparse(&row, 1, values, 4, &made));
  expect_ok(mv_tensor_free(values));
  return made;
}

/** Two steps with row 2 and two with its dense equivalent: whether the other rows are equal. */
static int32_t rows_are_alone(const char* optimizer) {
  mv_tensor rows = one_row(), dense = 0, values[2], states[2][9] = {{0}};
  expect_ok(mv_tensor_to_dense(rows, &dense));
  const mv_tensor gradients[] = {rows, dense};
  for (int i = 0; i < 2; ++i) {
    values[i] = ramp(1, 1, MV_F32);
    const uint64_t count = make_states(optimizer, MV_F32, states[i]);
    const kv_values kept = values_of(states[i], count);
    for (uint64_t t = 1; t <= 2; ++t) expect_ok(kv_optimizer_step(optimizer, t, t - 1, values[i], gradients[i], &kept));
    free_all(states[i], count);
  }
  int32_t equal = 0;
  expect_ok(mv_tensor_close(values[0], values[1], 0, 0, &equal));
  free_all(values, 2);
  expect_ok(mv_tensor_free(rows));
  expect_ok(mv_tensor_free(dense));
  return !equal;
}

static void lazy_optimizers_step_rows_alone(void** state) {
  (void)state;
  assert_true(rows_are_alone("mx.sgd momentum=0.5 wd=0.1"));
  assert_false(rows_are_alone("mx.sgd momentum=0.5 wd=0.1 lazy_update=0"));
  assert_false(rows_are_alone("mx.ftml"));
  assert_false(rows_are_alone("mx.lamb wd=0.1"));
}

static void halves_are_gradients_of_floats(void** state) {
  (void)state;
  mv_tensor value = ramp(1, 1, MV_F32), gradient = ramp(1, 0.5, MV_F16), expected = ramp(0.5, 0.75, MV_F32);
  expect_ok(kv_optimizer_step("sgd rate=0.5", 1, 0, value, gradient, NULL));
  expect_equal(value, expected, "f16");
  expect_ok(mv_tensor_free(value));
  expect_ok(mv_tensor_free(gradient));
  expect_ok(mv_tensor_free(expected));
}

static void refuse(mv_status expected, const char* words, mv_status got) {
  assert_int_equal(got, expected);
  if (strstr(mv_last_error(), words) == NULL) fail_msg("\"%s\" does not say \"%s\"", mv_last_error(), words);
}

static void mismatched_arguments_change_nothing(void** state) {
  (void)state;
  const char* adam = "mx.adam learning_rate=1";
  mv_tensor value = ramp(1, 1, MV_F32), before = ramp(1, 1, MV_F32), gradient = ramp(1, 1, MV_F32), half = ramp(0, 1, MV_F16),
            wide = ramp(0, 1, MV_F64), short_one = 0, states[9] = {0};
  const int64_t three = 3;
  expect_ok(mv_tensor_create(MV_F32, &three, 1, &short_one));
  const uint64_t count = make_states(adam, MV_F32, states);
  assert_int_equal(count, 2);
  const kv_values kept = values_of(states, count), too_few = values_of(states, 1);
  const mv_tensor wrong[] = {states[0], wide};
  const kv_values of_f64 = values_of(wrong, 2);
  int64_t a, b;
  refuse(MV_EINVAL, "mx.sgd", kv_optimizer_states("mx.sdg", &a, &b));
  refuse(MV_EINVAL, "values that each worker last received", kv_optimizer_states("dcasgd", &a, &b));
  refuse(MV_EINVAL, "NULL", kv_optimizer_states(NULL, &a, &b));
  refuse(MV_EINVAL, "NULL", kv_optimizer_states(adam, NULL, &b));
  double rate;
  refuse(MV_EINVAL, "mx.sgd", kv_optimizer_rate("mx.sdg", 1, &rate));
  refuse(MV_EINVAL, "mx.adagrad", kv_optimizer_rate("adagrad", 1, &rate));
  refuse(MV_EINVAL, "NULL", kv_optimizer_rate(NULL, 1, &rate));
  refuse(MV_EINVAL, "has count 1", kv_optimizer_step(adam, 0, 0, value, gradient, &kept));
  refuse(MV_ESHAPE, "f32 (3,)", kv_optimizer_step(adam, 1, 0, value, short_one, &kept));
  refuse(MV_EDTYPE, "f64", kv_optimizer_step(adam, 1, 0, value, wide, &kept));
  refuse(MV_EDTYPE, "f16", kv_optimizer_step(adam, 1, 0, half, half, &kept));
  refuse(MV_ESHAPE, "1 states given, the optimizer has 2", kv_optimizer_step(adam, 1, 0, value, gradient, &too_few));
  refuse(MV_ESHAPE, "1 states", kv_optimizer_step("mx.nadam", 1, 0, value, gradient, &too_few));
  refuse(MV_ESHAPE, "state 1 is f64", kv_optimizer_step(adam, 1, 0, value, gradient, &of_f64));
  assert_int_equal(kv_optimizer_step(adam, 1, 0, 0, gradient, &kept), MV_EHANDLE);
  expect_equal(value, before, "refused");
  free_all(states, count);
  mv_tensor all[] = {value, before, gradient, half, wide, short_one};
  free_all(all, sizeof all / sizeof *all);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(they_are_the_steps_of_a_store),
      cmocka_unit_test(lazy_optimizers_step_rows_alone),
      cmocka_unit_test(halves_are_gradients_of_floats),
      cmocka_unit_test(mismatched_arguments_change_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
