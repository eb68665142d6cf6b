/* MXNet's optimizers on tables: their update counts, on one server and on several, and in a checkpoint. tests/optimizers tests their
 * formulas. */
#define _XOPEN_SOURCE 700 /* nftw() */
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "nodes.h"

enum { kMany = 700000, kSteps = 5 }; /* 2.7 MiB: several messages to each server */

static uint64_t updates_of(mv_table table) {
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_ok(mv_table_describe(table, &info));
  return info.updates;
}

static float* filled(float value) {
  float* values = malloc(kMany * sizeof(float));
  assert_non_null(values);
  for (int i = 0; i < kMany; ++i) values[i] = value;
  return values;
}

/* ------------------------------------------------------------ counting */

static void an_add_counts_once(void** state) {
  (void)state;
  const mv_table table = create_table("kind=matrix rows=4 cols=2 updater=\"mx.adam learning_rate=0.5\"");
  assert_int_equal(updates_of(table), 0);
  const float gradient[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  const int64_t rows[2] = {3, 0};
  expect_ok(mv_table_add(table, gradient, 8, MV_F32, NULL));
  expect_ok(mv_table_add_rows(table, rows, 2, gradient, 4, MV_F32, NULL));
  assert_int_equal(updates_of(table), 2);
  expect_ok(mv_table_set(table, gradient, 8, MV_F32, NULL)); /* bypasses the updater */
  expect_ok(mv_table_set_updater(table, "mx.adam learning_rate=0.25", NULL));
  assert_int_equal(updates_of(table), 2);
  expect_ok(mv_table_set_updater(table, "sgd", NULL));
  assert_int_equal(updates_of(table), 0);
  expect_ok(mv_table_set_updater(table, "mx.adam", NULL));
  assert_int_equal(updates_of(table), 0);
}

/** Adam's step for a constant gradient is the rate, whatever t is; the schedule shows t. */
static void steps_on_two_servers(struct member* self) {
  const mv_table table =
      create_on(self, "size=700000 updater=\"mx.adam learning_rate=1 epsilon=0 lr_scheduler=multifactor step=2:4 factor=0.5\"");
  float* const values = filled(self->index == 0 ? 3.0f : 0.0f);
  if (self->index == 0)
    for (int i = 0; i < kSteps; ++i) expect_ok(mv_table_add(table, values, kMany, MV_F32, NULL));
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(mv_table_get(table, values, kMany, MV_F32, NULL));
  for (int i = 0; i < kMany; ++i) assert_true(fabs(values[i] + 1 + 1 + 0.5 + 0.5 + 0.25) < 1e-4);
  assert_int_equal(updates_of(table), kSteps);
  free(values);
}
static void one_that_travels_in_pieces_counts_once(void** state) {
  (void)state;
  run_nodes(2, NULL, steps_on_two_servers);
}

/** A server counts adds that contain any of its rows; in a merging table every server counts every round. */
static void rows_on_two_servers(struct member* self) {
  const mv_table table = create_on(
      self, "kind=sparse rows=10 cols=1 updater=\"mx.sgd learning_rate=1 lr_scheduler=multifactor step=1:2:3 factor=0.5\"");
  const float one = 1;
  const mv_table merging = create_on(
      self, "kind=sparse rows=10 cols=1 merge=1 updater=\"mx.sgd learning_rate=1 lr_scheduler=multifactor step=1:2:3 factor=0.5\"");
  const int64_t nothing = 9; /* the other worker's row in each round */
  const float none = 0;
  for (int64_t row = 0; row < 4; ++row) {
    if (self->index == 0) expect_ok(mv_table_add_rows(table, &row, 1, &one, 1, MV_F32, NULL));
    expect_ok(mv_table_add_rows(merging, self->index == 0 ? &row : &nothing, 1, self->index == 0 ? &one : &none, 1, MV_F32, NULL));
  }
  expect_ok(mv_barrier(self->node, NULL));
  const int64_t rows[4] = {0, 1, 2, 3};
  float got[4];
  expect_ok(mv_table_get_rows(table, rows, 4, got, 4, MV_F32, NULL));
  assert_true(got[0] == -1 && got[1] == -1 && got[2] == -0.5 && got[3] == -0.5);
  expect_ok(mv_table_get_rows(merging, rows, 4, got, 4, MV_F32, NULL));
  assert_true(got[0] == -1 && got[1] == -0.5 && got[2] == -0.25 && got[3] == -0.125);
}
static void adds_of_rows_count_where_they_go(void** state) {
  (void)state;
  run_nodes(2, NULL, rows_on_two_servers);
}

/* ------------------------------------------------------------ norms */

static void norms_are_of_whole_tensors(void** state) {
  (void)state;
  const mv_table table = create_table("size=4 updater=\"mx.lamb learning_rate=0.5 bias_correction=0\"");
  const float start[4] = {3, 0, 4, 0}, gradient[4] = {1, 0, 1, 0};
  float got[4];
  expect_ok(mv_table_set(table, start, 4, MV_F32, NULL));
  expect_ok(mv_table_add(table, gradient, 4, MV_F32, NULL));
  expect_ok(mv_table_get(table, got, 4, MV_F32, NULL));
  /* |w| = 5, both steps are alike: the direction is (1, 0, 1, 0) / sqrt(2) */
  assert_true(fabs(got[0] - (3 - 0.5 * 5 / sqrt(2))) < 1e-5 && fabs(got[2] - (4 - 0.5 * 5 / sqrt(2))) < 1e-5);
  assert_true(got[1] == 0 && got[3] == 0);

  const int64_t row = 2;
  const float none = 0;
  expect_ok(mv_table_set(table, start, 4, MV_F32, NULL));
  expect_ok(mv_table_add_rows(table, &row, 1, &none, 1, MV_F32, NULL)); /* a gradient of zeros for all: the means continue to decay */
  expect_ok(mv_table_get(table, got, 4, MV_F32, NULL));
  assert_true(got[0] < 3 && got[2] < 4 && got[1] == 0);

  expect_error(mv_table_set_updater(create_table("size=700000"), "mx.lamb", NULL), MV_EINVAL, "norms of the whole tensor");
  expect_error(mv_table_set_updater(create_table("size=700000"), "mx.lbsgd warmup_strategy=lars", NULL), MV_EINVAL, "norms");
  expect_ok(mv_table_set_updater(create_table("size=700000"), "mx.lbsgd warmup_startegy=sqrt", NULL));
  mv_table keyed;
  expect_error(mv_table_create_text(0, "kind=keyvalue updater=mx.lamb", NULL, 0, MV_F32, &keyed), MV_EINVAL, "whole tensors");
}

/* ------------------------------------------------------------ descriptions and errors */

static void a_text_that_is_too_long_ends_with_a_whole_parameter(void** state) {
  (void)state;
  char text[400] = "mx.lbsgd wd=0.125 rescale_grad=0.25 clip_gradient=3 lr_scheduler=multifactor factor=0.5 step=1000";
  for (int i = 1; i < 40; ++i) snprintf(text + strlen(text), sizeof(text) - strlen(text), ":%d", 1000 + i);
  const mv_table table = create_table("size=1");
  expect_ok(mv_table_set_updater(table, text, NULL));
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_ok(mv_table_describe(table, &info));
  expect_ok(mv_table_set_updater(table, "mx.lbsgd lr_scheduler=factor step=7", NULL));
  assert_non_null(strstr(info.updater, "mx.lbsgd learning_rate=0.01"));
  assert_non_null(strstr(info.updater, " wd=0.125 "));
  assert_null(strstr(info.updater, "step="));
}

static void errors_name_the_wrong_value(void** state) {
  (void)state;
  const mv_table table = create_table("size=1");
  expect_error(mv_table_set_updater(table, "mx.adma", NULL), MV_EINVAL, "mx.adam");
  expect_error(mv_table_set_updater(table, "mx.adam beta3=1", NULL), MV_EINVAL, "clip_gradient=0");
  expect_error(mv_table_set_updater(table, "mx.adam beta1=1", NULL), MV_EINVAL, "beta1=1 must be at least 0 and below 1");
  expect_error(mv_table_set_updater(create_table("size=1 dtype=i32"), "mx.sgd", NULL), MV_EINVAL, "floating-point");
  float one = 1;
  expect_ok(mv_table_add(table, &one, 1, MV_F32, NULL)); /* still usable */
}

/* ------------------------------------------------------------ checkpoints */

static char directory[] = "/tmp/polyverso-optimizers-test-XXXXXX";

static int remove_one(const char* path, const struct stat* stat, int kind, struct FTW* walk) {
  (void)stat, (void)kind, (void)walk;
  return remove(path);
}

static void step_on(mv_table table, int from, int to) {
  for (int i = from; i < to; ++i) {
    const float gradient[3] = {1, (float)i, -2};
    expect_ok(mv_table_add(table, gradient, 3, MV_F32, NULL));
  }
}

/** Nadam's product and the count continue where they were: the states alone would not suffice. */
static void a_loaded_table_goes_on_as_the_saved_one(void** state) {
  (void)state;
  assert_non_null(mkdtemp(directory));
  const char* const spec = "size=3 name=w updater=\"mx.nadam learning_rate=0.1 schedule_decay=0.5\"";
  expect_ok(mv_init(NULL));
  mv_table table = create_table(spec);
  step_on(table, 0, 4);
  expect_ok(mv_checkpoint_save(0, directory, 0, NULL));
  step_on(table, 4, 8);
  float through[3], resumed[3];
  expect_ok(mv_table_get(table, through, 3, MV_F32, NULL));
  expect_ok(mv_shutdown(0));

  expect_ok(mv_init(NULL));
  expect_ok(mv_checkpoint_load(0, directory, NULL));
  table = create_table(spec);
  assert_int_equal(updates_of(table), 4);
  step_on(table, 4, 8);
  expect_ok(mv_table_get(table, resumed, 3, MV_F32, NULL));
  assert_memory_equal(through, resumed, sizeof(through));
  assert_int_equal(updates_of(table), 8);
  expect_ok(mv_shutdown(0));
  nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_ALONE(an_add_counts_once),
      cmocka_unit_test(one_that_travels_in_pieces_counts_once),
      cmocka_unit_test(adds_of_rows_count_where_they_go),
      TEST_ALONE(norms_are_of_whole_tensors),
      TEST_ALONE(a_text_that_is_too_long_ends_with_a_whole_parameter),
      TEST_ALONE(errors_name_the_wrong_value),
      cmocka_unit_test(a_loaded_table_goes_on_as_the_saved_one),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
