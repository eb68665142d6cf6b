/* Training strategies: their effect on the arrays of ranks that make different numbers of steps, and their argument checks. */
#include <math.h>

#include "nodes.h"

enum { kRanks = 3 };

static mv_group open_all(const struct member* self) {
  mv_group group = 0;
  expect_ok(mv_group_open(self->node, NULL, 0, &group));
  return group;
}

static mv_array array_of(void* data, uint64_t count, mv_dtype dtype) {
  mv_array array;
  memset(&array, 0, sizeof(array));
  array.data = data;
  array.count = count;
  array.dtype = dtype;
  return array;
}

/* ------------------------------------------------------------ AllReduceSGD */

static void sums_as_long_as_it_has_gradients(struct member* self) {
  const mv_group group = open_all(self);
  mv_allreduce_sgd sgd = 0;
  expect_ok(mv_sgd_open(group, &sgd));
  double parameters[2] = {self->index + 4.0, self->index};
  const mv_array model = array_of(parameters, 2, MV_F64);
  expect_ok(mv_sgd_synchronize(sgd, &model, 1, NULL));
  assert_true(parameters[0] == 4); /* no rank has made a step: the lowest rank's */
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int step = 0; step < 2 * self->index; ++step) { /* rank 0 makes none */
      float one = (float)self->index, many[3] = {0, 10.0F * (float)self->index, 1};
      const mv_array gradients[2] = {array_of(&one, 1, MV_F32), array_of(many, 3, MV_F32)};
      uint64_t contributors = 0;
      expect_ok(mv_sgd_sum_and_normalize(sgd, gradients, 2, &contributors, NULL));
      assert_int_equal(contributors, step < 2 ? 2 : 1);
      assert_true(one == (step < 2 ? 1.5F : 2.0F) && many[1] == 10 * one && many[2] == 1);
      parameters[1] = 100 * self->index + step;
    }
    expect_ok(mv_sgd_synchronize(sgd, &model, 1, NULL));
    assert_true(parameters[1] == 203); /* the rank with most steps */
  }
  uint64_t steps = 0, operations = 0, payload = 0, dense = 0;
  expect_ok(mv_strategy_meter(sgd, &steps, &operations, &payload, &dense));
  assert_int_equal(steps, 4 * self->index);
  assert_int_equal(dense, steps * 16);
  expect_ok(mv_sgd_close(sgd));
  expect_ok(mv_group_close(group));
}
static void gradients_are_divided_by_those_that_contribute(void** state) {
  (void)state;
  run_nodes(kRanks, NULL, sums_as_long_as_it_has_gradients);
}

/* ------------------------------------------------------------ AllReduceEA */

/* Without gradients, the parameters of all ranks converge to the centre, which starts as their mean. */
static void averages_elastically(struct member* self) {
  const mv_group group = open_all(self);
  mv_allreduce_ea ea = 0;
  expect_ok(mv_ea_open(group, 2, 0.25, &ea));
  double value = 8, center = 0;
  const mv_array model = array_of(&value, 1, MV_F64), read = array_of(&center, 1, MV_F64);
  expect_error(mv_ea_read_center(ea, &read, 1), MV_ESTATE, "no centre yet");
  expect_ok(mv_ea_synchronize_parameters(ea, &model, 1, NULL));
  value += 4.0 * self->index;                    /* 8, 12, 16 */
  expect_ok(mv_ea_average(ea, &model, 1, NULL)); /* tau is 2 */
  assert_true(value == 8 + 4.0 * self->index);
  expect_ok(mv_ea_average(ea, &model, 1, NULL));
  assert_true(value == 8 + 3.0 * self->index); /* a quarter of the way to 8 */
  expect_ok(mv_ea_read_center(ea, &read, 1));
  assert_true(center == 11); /* 8 + 0 + 1 + 2 */
  expect_ok(mv_ea_synchronize_center(ea, &model, 1, NULL));
  assert_true(value == 8 + 3.0 * self->index - 0.25 * (8 + 3.0 * self->index - 11)); /* the round in which no rank is active */
  expect_ok(mv_ea_read_center(ea, &read, 1));
  assert_true(center == 11); /* its sum is not added */
  expect_ok(mv_ea_synchronize_parameters(ea, &model, 1, NULL));
  expect_ok(mv_ea_read_center(ea, &read, 1));
  assert_true(value == center);
  expect_ok(mv_ea_close(ea));
  expect_ok(mv_group_close(group));
}
static void parameters_and_centre_draw_each_other(void** state) {
  (void)state;
  run_nodes(kRanks, NULL, averages_elastically);
}

/* ------------------------------------------------------------ against a table; local SGD; compressed */

static void meets_a_table(struct member* self) {
  const mv_table table = create_on(self, "kind=array rows=4 dtype=f32");
  mv_async_ea ea = 0;
  expect_ok(mv_async_ea_open(table, 1, 0.5, &ea));
  float values[4] = {8, 8, 8, 8};
  const mv_array model[2] = {array_of(values, 1, MV_F32), array_of(values + 1, 3, MV_F32)};
  if (self->index == 0) {
    expect_ok(mv_async_ea_average(ea, model, 2, NULL)); /* needs no other rank */
    assert_true(values[0] == 4 && values[3] == 4);
  }
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(mv_async_ea_read(ea, model, 2, NULL));
  assert_true(values[0] == 4 && values[3] == 4);
  expect_error(mv_async_ea_average(ea, model, 1, NULL), MV_ESHAPE, "1 parameters given, but the centre's table has 4");
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(mv_async_ea_close(ea));
}
static void a_centre_in_a_table_is_met_alone(void** state) {
  (void)state;
  run_nodes(2, NULL, meets_a_table);
}

static void meets_every_four_steps(struct member* self) {
  const mv_group group = open_all(self);
  static const char* const kSettings[] = {"inner_steps=4", "inner_steps=4 fragments=2 overlap=1 mixing=0.5",
                                          "inner_steps=4 outer_rate=0.7 outer_momentum=0.9"};
  for (size_t s = 0; s < COUNT_OF(kSettings); ++s) {
    mv_local_sgd local = 0;
    expect_ok(mv_local_sgd_open(group, kSettings[s], &local));
    double values[5] = {self->index, 1, 2, 3, 4};
    const mv_array model[2] = {array_of(values, 2, MV_F64), array_of(values + 2, 3, MV_F64)};
    expect_ok(mv_local_sgd_synchronize(local, model, 2, NULL));
    assert_true(values[0] == 0);
    for (int step = 0; step < 8 + 3 * self->index; ++step) {
      for (int i = 0; i < 5; ++i) values[i] += self->index + 1;
      expect_ok(mv_local_sgd_step(local, model, 2, NULL));
      if (s == 0 && step == 3) assert_true(values[0] == 4 * 2 && values[4] == 4 + 4 * 2); /* 1, 2 and 3 a step, on average */
    }
    expect_ok(mv_local_sgd_synchronize(local, model, 2, NULL));
    double ends[kRanks * 5];
    expect_ok(mv_allgather(group, values, 5, ends, MV_F64, NULL));
    for (int rank = 1; rank < kRanks; ++rank) assert_memory_equal(ends, ends + (size_t)rank * 5, 5 * sizeof(double));
    expect_ok(mv_local_sgd_close(local));
  }
  mv_local_sgd local = 0;
  expect_error(mv_local_sgd_open(group, "inner_steps=0", &local), MV_EINVAL, "inner_steps");
  expect_error(mv_local_sgd_open(group, "inner_step=5", &local), MV_EINVAL, "inner_step");
  expect_ok(mv_group_close(group));
}
static void ranks_train_alone_and_meet(void** state) {
  (void)state;
  run_nodes(kRanks, NULL, meets_every_four_steps);
}

static void averages_less(struct member* self) {
  const mv_group group = open_all(self);
  static const char* const kWays[] = {"int8", "topk ratio=1", "powersgd rank=1"};
  for (size_t way = 0; way < COUNT_OF(kWays); ++way) {
    mv_compressed compressed = 0;
    expect_ok(mv_compressed_open(group, kWays[way], &compressed));
    float matrix[64];
    const int64_t rows[] = {8};
    const mv_array gradient = array_of(matrix, 64, MV_F32);
    for (int step = 0; step < 1 + self->index; ++step) {
      for (int i = 0; i < 64; ++i) matrix[i] = (float)((self->index + 1) * (i % 8 + 1) * (i / 8 + 1)); /* rank one */
      uint64_t contributors = 0;
      expect_ok(mv_compressed_average(compressed, &gradient, 1, rows, 1, &contributors, NULL));
      assert_int_equal(contributors, kRanks - step);
      const float mean = 2 + 0.5F * (float)step; /* of 1 2 3, of 2 3, of 3 */
      for (int i = 0; i < 64; ++i) assert_true(fabsf(matrix[i] - mean * (float)((i % 8 + 1) * (i / 8 + 1))) < 2);
    }
    expect_ok(mv_compressed_finish(compressed, &gradient, 1, rows, 1, NULL));
    expect_ok(mv_compressed_close(compressed));
  }
  mv_compressed compressed = 0;
  expect_ok(mv_compressed_open(group, "1bit threshold=0.5", &compressed)); /* which has no code for zero */
  for (int step = 0; step < 1 + self->index; ++step) {
    float signs[40];
    const mv_array gradient = array_of(signs, 40, MV_F32);
    for (int i = 0; i < 40; ++i) signs[i] = i % 3 == 0 ? 9 : -9;
    uint64_t contributors = 0;
    expect_ok(mv_compressed_average(compressed, &gradient, 1, NULL, 0, &contributors, NULL));
    assert_int_equal(contributors, kRanks - step);
    for (int i = 0; i < 40; ++i) assert_true(signs[i] == (i % 3 == 0 ? 1 : -1)); /* of those that contribute */
  }
  float none[40] = {0};
  const mv_array nothing = array_of(none, 40, MV_F32);
  expect_ok(mv_compressed_finish(compressed, &nothing, 1, NULL, 0, NULL));
  expect_ok(mv_compressed_close(compressed));
  expect_error(mv_compressed_open(group, "zip", &compressed), MV_EINVAL, "powersgd");
  expect_ok(mv_group_close(group));
}
static void gradients_travel_as_less(void** state) {
  (void)state;
  run_nodes(kRanks, NULL, averages_less);
}

/* ------------------------------------------------------------ refusals */

static void refuses(struct member* self) {
  const mv_group group = open_all(self);
  mv_allreduce_sgd sgd = 0;
  mv_allreduce_ea ea = 0;
  expect_error(mv_sgd_open(group, NULL), MV_EINVAL, "NULL");
  expect_error(mv_sgd_open(12345, &sgd), MV_EHANDLE, "mv_sgd_open");
  expect_error(mv_ea_open(group, 0, 0.5, &ea), MV_EINVAL, "tau is 0");
  expect_error(mv_ea_open(group, 1, -1, &ea), MV_EINVAL, "alpha is -1");
  expect_ok(mv_sgd_open(group, &sgd));
  float value = 1;
  mv_array model = array_of(&value, 1, MV_F32);
  expect_error(mv_ea_average(sgd, &model, 1, NULL), MV_EHANDLE, "is an AllReduceSGD, not an AllReduceEA");
  expect_error(mv_sgd_sum_gradients(sgd, NULL, 1, NULL, NULL), MV_EINVAL, "mv_sgd_sum_gradients");
  int32_t integer = 1;
  model = array_of(&integer, 1, MV_I32);
  expect_error(mv_sgd_sum_gradients(sgd, &model, 1, NULL, NULL), MV_EDTYPE, "array 0 is i32");
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  mv_request request = 0;
  options.flags = MV_ASYNC;
  options.request = &request;
  model = array_of(&value, 1, MV_F32);
  expect_error(mv_sgd_sum_gradients(sgd, &model, 1, NULL, &options), MV_EINVAL, "blocks");
  expect_ok(mv_sgd_close(sgd));
  expect_error(mv_sgd_close(sgd), MV_EHANDLE, "mv_sgd_close");
  expect_error(mv_strategy_cancel(sgd), MV_EHANDLE, "mv_strategy_cancel");
  expect_ok(mv_group_close(group));
}
static void mistakes_are_named(void** state) {
  (void)state;
  run_nodes(1, NULL, refuses);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gradients_are_divided_by_those_that_contribute),
      cmocka_unit_test(parameters_and_centre_draw_each_other),
      cmocka_unit_test(a_centre_in_a_table_is_met_alone),
      cmocka_unit_test(ranks_train_alone_and_meet),
      cmocka_unit_test(gradients_travel_as_less),
      cmocka_unit_test(mistakes_are_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
