/* Values written to and read from tables, on a cluster of one process: all and rows, each dtype, each refusal. */
#include <math.h>
#include <stdlib.h>

#include "expect.h"

static void adds_add_and_sets_assign(void** state) {
  (void)state;
  const mv_table table = create_table("size=3");
  const float one[3] = {1, 2, 3}, base[3] = {10, 20, 30};
  float got[3];
  expect_ok(mv_table_add(table, one, 3, MV_F32, NULL));
  expect_ok(mv_table_add(table, one, 3, MV_F32, NULL));
  expect_ok(mv_table_get(table, got, 3, MV_F32, NULL));
  assert_true(got[0] == 2 && got[1] == 4 && got[2] == 6);
  expect_ok(mv_table_set(table, base, 3, MV_F32, NULL));
  expect_ok(mv_table_add(table, one, 3, MV_F32, NULL));
  expect_ok(mv_table_peek(table, got, 3, MV_F32, NULL));
  assert_true(got[0] == 11 && got[1] == 22 && got[2] == 33);
}

static void rows_come_in_any_order_and_repeats_add_up(void** state) {
  (void)state;
  const mv_table table = create_table("kind=matrix rows=4 cols=2");
  const int64_t rows[3] = {3, 0, 3};
  const float delta[6] = {1, 2, 3, 4, 10, 20};
  float all[8], some[6];
  expect_ok(mv_table_add_rows(table, rows, 3, delta, 6, MV_F32, NULL));
  expect_ok(mv_table_get(table, all, 8, MV_F32, NULL));
  const float expected[8] = {3, 4, 0, 0, 0, 0, 11, 22};
  assert_memory_equal(all, expected, sizeof(all));
  expect_ok(mv_table_get_rows(table, rows, 3, some, 6, MV_F32, NULL));
  const float of_rows[6] = {11, 22, 3, 4, 11, 22};
  assert_memory_equal(some, of_rows, sizeof(some));
  expect_ok(mv_table_set_rows(table, rows, 3, delta, 6, MV_F32, NULL));
  expect_ok(mv_table_peek_rows(table, rows, 3, some, 6, MV_F32, NULL));
  const float last_stays[6] = {10, 20, 3, 4, 10, 20};
  assert_memory_equal(some, last_stays, sizeof(some));
}

static void an_arrays_elements_are_its_rows(void** state) {
  (void)state;
  const mv_table table = create_table("size=5 dtype=f64");
  const int64_t rows[2] = {4, 1};
  const double delta[2] = {0.5, 0.25};
  double all[5];
  expect_ok(mv_table_add_rows(table, rows, 2, delta, 2, MV_F64, NULL));
  expect_ok(mv_table_get(table, all, 5, MV_F64, NULL));
  assert_true(all[0] == 0 && all[1] == 0.25 && all[4] == 0.5);
}

static void no_rows_are_no_change(void** state) {
  (void)state;
  const mv_table table = create_table("size=2");
  float got[2] = {7, 7};
  expect_ok(mv_table_add_rows(table, NULL, 0, NULL, 0, MV_F32, NULL));
  expect_ok(mv_table_get_rows(table, NULL, 0, NULL, 0, MV_F32, NULL));
  expect_ok(mv_table_get(table, got, 2, MV_F32, NULL));
  assert_true(got[0] == 0 && got[1] == 0);
}

static void raw_data_counts_bytes(void** state) {
  (void)state;
  const mv_table table = create_table("kind=matrix rows=2 cols=2 dtype=f64");
  const double delta[4] = {1, 2, 3, 4};
  double got[4];
  const int64_t row = 1;
  expect_ok(mv_table_add(table, delta, sizeof(delta), MV_RAW, NULL));
  expect_ok(mv_table_add_rows(table, &row, 1, delta, 2 * sizeof(double), MV_RAW, NULL));
  expect_ok(mv_table_get(table, got, sizeof(got), MV_RAW, NULL));
  assert_true(got[0] == 1 && got[1] == 2 && got[2] == 4 && got[3] == 6);
  expect_error(mv_table_add(table, delta, 4, MV_RAW, NULL), MV_ESHAPE, "");
  expect_error(mv_table_get(table, got, sizeof(got) - 1, MV_RAW, NULL), MV_ESHAPE, "");
}

static void a_large_table_keeps_every_value(void** state) {
  (void)state;
  enum { kElements = 700001 }; /* several stripes, the last one odd */
  const mv_table table = create_table("size=700001");
  float *values = malloc(kElements * sizeof(float)), *got = malloc(kElements * sizeof(float));
  for (size_t i = 0; i < kElements; ++i) values[i] = (float)(i % 1000);
  expect_ok(mv_table_add(table, values, kElements, MV_F32, NULL));
  expect_ok(mv_table_add(table, values, kElements, MV_F32, NULL));
  expect_ok(mv_table_get(table, got, kElements, MV_F32, NULL));
  for (size_t i = 0; i < kElements; ++i) assert_true(got[i] == 2 * values[i]);
  free(values);
  free(got);
}

static void what_does_not_fit_is_refused_and_changes_nothing(void** state) {
  (void)state;
  const mv_table table = create_table("name=weights kind=matrix rows=3 cols=2");
  float values[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  const double doubles[6] = {1, 1, 1, 1, 1, 1};
  const int64_t rows[2] = {0, 1}, beyond[2] = {0, 3}, negative[2] = {-1, 0}, huge[1] = {INT64_MAX};
  expect_error(mv_table_add(table, values, 5, MV_F32, NULL), MV_ESHAPE, "weights");
  expect_error(mv_table_add(table, values, 0, MV_F32, NULL), MV_ESHAPE, "weights");
  expect_error(mv_table_add(table, values, UINT64_MAX, MV_F32, NULL), MV_ESHAPE, "");
  expect_error(mv_table_add(table, values, UINT64_C(1) << 62, MV_F32, NULL), MV_ESHAPE, "");
  expect_error(mv_table_add(table, doubles, 6, MV_F64, NULL), MV_EDTYPE, "weights");
  expect_error(mv_table_add(table, doubles, 6, MV_I64, NULL), MV_EDTYPE, "");
  expect_error(mv_table_add(table, values, 6, 17, NULL), MV_EINVAL, "17 is not an mv_dtype");
  expect_error(mv_table_add(table, NULL, 6, MV_F32, NULL), MV_EINVAL, "data is NULL");
  expect_error(mv_table_add_rows(table, rows, 2, values, 3, MV_F32, NULL), MV_ESHAPE, "");
  expect_error(mv_table_add_rows(table, rows, 2, values, 6, MV_F32, NULL), MV_ESHAPE, "");
  expect_error(mv_table_add_rows(table, NULL, 2, values, 4, MV_F32, NULL), MV_EINVAL, "rows is NULL");
  expect_error(mv_table_add_rows(table, rows, UINT64_C(1) << 63, values, 0, MV_F32, NULL), MV_ESHAPE, "");
  expect_error(mv_table_add_rows(table, beyond, 2, values, 4, MV_F32, NULL), MV_ERANGE, "3");
  expect_error(mv_table_add_rows(table, negative, 2, values, 4, MV_F32, NULL), MV_ERANGE, "-1");
  expect_error(mv_table_set_rows(table, huge, 1, values, 2, MV_F32, NULL), MV_ERANGE, "9223372036854775807");
  expect_error(mv_table_get(table, values, 7, MV_F32, NULL), MV_ESHAPE, "");
  expect_error(mv_table_get(table, NULL, 6, MV_F32, NULL), MV_EINVAL, "data is NULL");
  expect_error(mv_table_get_rows(table, beyond, 2, values, 4, MV_F32, NULL), MV_ERANGE, "");
  expect_error(mv_table_peek_rows(table, negative, 2, values, 4, MV_F32, NULL), MV_ERANGE, "");
  expect_ok(mv_table_get(table, values, 6, MV_F32, NULL));
  for (size_t i = 0; i < 6; ++i) assert_true(values[i] == 0);
}

static void nan_and_infinity_are_refused_where_the_table_says_so(void** state) {
  (void)state;
  const mv_table strict = create_table("size=3 reject_nonfinite=1"), open = create_table("size=3");
  const float bad[3] = {1, NAN, 2};
  const float worse[3] = {INFINITY, 0, 0};
  const int64_t rows[3] = {0, 1, 2};
  float got[3];
  expect_error(mv_table_add(strict, bad, 3, MV_F32, NULL), MV_ENONFINITE, "");
  expect_error(mv_table_add_rows(strict, rows, 3, worse, 3, MV_F32, NULL), MV_ENONFINITE, "");
  expect_error(mv_table_set(strict, worse, 3, MV_F32, NULL), MV_ENONFINITE, "");
  expect_ok(mv_table_get(strict, got, 3, MV_F32, NULL));
  assert_true(got[0] == 0 && got[1] == 0 && got[2] == 0);
  expect_ok(mv_table_add(open, bad, 3, MV_F32, NULL));
  expect_ok(mv_table_get(open, got, 3, MV_F32, NULL));
  assert_true(isnan(got[1]));
}

static void a_cluster_of_one_in_sync_mode_is_in_step_with_itself(void** state) {
  (void)state;
  mv_node node = 0;
  mv_table table = 0;
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.sync = 1;
  expect_ok(mv_node_open(&options, &node));
  expect_ok(mv_table_create_text(node, "size=1 dtype=f64", NULL, 0, MV_F64, &table));
  for (int round = 1; round <= 20; ++round) {
    const double one = 1;
    double got = -1;
    expect_ok(mv_table_add(table, &one, 1, MV_F64, NULL));
    expect_ok(mv_table_get(table, &got, 1, MV_F64, NULL));
    assert_true(got == round);
  }
  expect_ok(mv_barrier(node, NULL));
  expect_ok(mv_shutdown(node));
}

int main(void) {
const struct CMUnitTest tests[] = {
      TEST_ALONE(adds_add_and_sets_assign),
      TEST_ALONE(rows_come_in_any_order_and_repeats_add_up),
      TEST_ALONE(an_arrays_elements_are_its_rows),
      TEST_ALONE(no_rows_are_no_change),
      TEST_ALONE(raw_data_counts_bytes),
      TEST_ALONE(a_large_table_keeps_every_value),
      TEST_ALONE(what_does_not_fit_is_refused_and_changes_nothing),
      TEST_ALONE(nan_and_infinity_are_refused_where_the_table_says_so),
      TEST_ALONE(a_cluster_of_one_in_sync_mode_is_in_step_with_itself),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
