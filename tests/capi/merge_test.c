/* Merging tables: the adds of all workers in a round are applied together, once. */
#include <math.h>
#include <stdlib.h>

#include "nodes.h"

enum { kNodes = 3, kRounds = 25 };

/** With assign, a round leaves exactly the sum of its parts, so an add that was counted twice, or in another round, would show. */
static void rounds_of_each_kind(struct member* self) {
  static const char* const kSpecs[] = {
      "size=1 name=one merge=1 updater=assign", "size=3000000 name=large merge=1 updater=assign",
      "kind=matrix rows=50 cols=6 name=matrix merge=1 updater=assign", "size=77 dtype=f64 name=doubles merge=1 updater=assign",
      "size=5 dtype=i32 name=integers merge=1 updater=assign"};
  for (size_t which = 0; which < COUNT_OF(kSpecs); ++which) {
    const mv_table table = create_on(self, kSpecs[which]);
    mv_table_info info = MV_TABLE_INFO_INIT;
    expect_ok(mv_table_describe(table, &info));
    assert_int_equal(info.flags, MV_MERGE);
    const uint64_t count = info.rows * info.cols;
    const int rounds = count > 1000 ? 4 : kRounds;
    char* const values = malloc(info.bytes);
    assert_non_null(values);
    for (int round = 0; round < rounds; ++round) {
      const int mine = 1 + round * (self->index + 1);
      int sum = 0;
      for (int i = 0; i < self->nodes; ++i) sum += 1 + round * (i + 1);
      for (uint64_t i = 0; i < count; ++i) {
        if (info.dtype == MV_F32) ((float*)(void*)values)[i] = (float)mine;
        if (info.dtype == MV_F64) ((double*)(void*)values)[i] = mine;
        if (info.dtype == MV_I32) ((int32_t*)(void*)values)[i] = mine;
      }
      expect_ok(mv_table_add(table, values, count, info.dtype, NULL));
      memset(values, 0, info.bytes);
      expect_ok(mv_table_get(table, values, count, info.dtype, NULL));
      for (uint64_t i = 0; i < count; ++i) {
        const double got = info.dtype == MV_F32   ? ((float*)(void*)values)[i]
                           : info.dtype == MV_F64 ? ((double*)(void*)values)[i]
                                                  : ((int32_t*)(void*)values)[i];
        assert_true(got == sum);
      }
    }
    free(values);
  }
}
static void a_get_holds_its_rounds_whole(void** state) {
  (void)state;
  run_nodes(kNodes, NULL, rounds_of_each_kind);
}

/** Each worker adds to rows of its own and to a common row. */
static void rows_of_all(struct member* self) {
  static const char* const kSpecs[] = {"kind=matrix rows=40 cols=3 name=m merge=1", "kind=sparse rows=1000000 cols=3 name=s merge=1",
                                       "kind=keyvalue cols=3 name=k merge=1"};
  for (size_t which = 0; which < COUNT_OF(kSpecs); ++which) {
    const mv_table table = create_on(self, kSpecs[which]);
    const int64_t rows[] = {7, 10 + self->index, 7}; /* a repeated one counts twice */
    const float ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    for (int round = 1; round <= kRounds; ++round) {
      const int64_t wanted[] = {7, 10, 11, 12, 20};
      float got[15];
      expect_ok(mv_table_add_rows(table, rows, 3, ones, 9, MV_F32, NULL));
      expect_ok(mv_table_get_rows(table, wanted, 5, got, 15, MV_F32, NULL));
      for (int column = 0; column < 3; ++column) {
        assert_true(got[column] == (float)(2 * kNodes * round));
        for (int i = 0; i < kNodes; ++i) assert_true(got[3 * (1 + i) + column] == (float)round);
        assert_true(got[12 + column] == 0);
      }
    }
  }
}
static void rows_are_merged(void** state) {
  (void)state;
  run_nodes(kNodes, NULL, rows_of_all);
}

/** Rows larger than a message, which begin and end within stripes; some of two workers, some of one. */
static void long_rows_of_all(struct member* self) {
  enum { kCols = (1 << 18) + 3 };
  const mv_table table = create_on(self, "kind=matrix rows=9 cols=262147 name=long merge=1 updater=\"mx.adagrad learning_rate=1\"");
  const int64_t rows[] = {self->index, self->index + 1};
  float* const values = malloc(2 * kCols * sizeof(float));
  assert_non_null(values);
  double expected = 0;
  for (int round = 1; round <= 2; ++round) {
    for (int i = 0; i < 2 * kCols; ++i) values[i] = 1;
    expect_ok(mv_table_add_rows(table, rows, 2, values, 2 * kCols, MV_F32, NULL));
    expected -= 1 / sqrt(round); /* one step of the sum, of one gradient or of two */
    for (int64_t row = 0; row <= kNodes + 1; ++row) {
      expect_ok(mv_table_get_rows(table, &row, 1, values, kCols, MV_F32, NULL));
      for (int i = 0; i < kCols; ++i)
        if (fabs(values[i] - (row <= kNodes ? expected : 0)) > 1e-3)
          fail_msg("round %d, row %d, element %d: %g", round, (int)row, i, (double)values[i]);
    }
  }
  free(values);
}
static void long_rows_are_merged(void** state) {
  (void)state;
  run_nodes(kNodes, NULL, long_rows_of_all);
}

/** Asynchronous adds, and gets among them whose values show how many adds they include. */
static void many_at_once(struct member* self) {
  const mv_table table = create_on(self, "size=1000 name=w merge=1");
  float ones[1000], got[8][1000];
  mv_request gets[8];
  for (int i = 0; i < 1000; ++i) ones[i] = 1;
  for (int round = 0; round < 8; ++round) {
    mv_call_options soon = MV_CALL_OPTIONS_INIT;
    soon.flags = MV_FORGET;
    expect_ok(mv_table_add(table, ones, 1000, MV_F32, &soon));
    soon.flags = MV_ASYNC;
    soon.request = &gets[round];
    expect_ok(mv_table_get(table, got[round], 1000, MV_F32, &soon));
  }
  for (int round = 0; round < 8; ++round) {
    expect_ok(mv_request_wait(gets[round], 0));
    /* at least the rounds of its own adds; perhaps one more that completed meanwhile */
    assert_true(got[round][0] >= (float)(kNodes * (round + 1)) && got[round][999] >= (float)(kNodes * (round + 1)));
    assert_true((int)got[round][500] % kNodes == 0);
  }
}
static void asynchronous_calls_keep_their_order(void** state) {
  (void)state;
  run_nodes(kNodes, NULL, many_at_once);
}

/** Worker 2 leaves after its first round; worker 0 gets without having added. */
static void one_leaves(struct member* self) {
  const mv_table table = create_on(self, "size=2 name=w merge=1");
  const float ones[2] = {1, 1};
  float got[2];
  const int rounds = self->index == 2 ? 1 : 5;
  expect_ok(mv_table_get(table, got, 2, MV_F32, NULL)); /* requires no action of any worker */
  for (int round = 1; round <= rounds; ++round) {
    expect_ok(mv_table_add(table, ones, 2, MV_F32, NULL));
    expect_ok(mv_table_get(table, got, 2, MV_F32, NULL));
    assert_true(got[0] == (float)(round == 1 ? 3 : 3 + 2 * (round - 1)));
  }
}
static void rounds_continue_without_a_worker_that_has_left(void** state) {
  (void)state;
  run_nodes(kNodes, NULL, one_leaves);
}

static void one_is_late(struct member* self) {
  const mv_table table = create_on(self, "size=1 name=w merge=1");
  const float one = 1;
  float got = -1;
  if (self->index == 0) {
    mv_call_options soon = MV_CALL_OPTIONS_INIT;
    soon.timeout_ms = 100;
    expect_ok(mv_table_add(table, &one, 1, MV_F32, NULL));
    expect_error(mv_table_get(table, &got, 1, MV_F32, &soon), MV_ETIMEOUT, "1");
    expect_ok(mv_table_peek(table, &got, 1, MV_F32, NULL)); /* bypasses the gate */
    assert_true(got == 0);
  }
  expect_ok(mv_barrier(self->node, NULL));
  if (self->index != 0) expect_ok(mv_table_add(table, &one, 1, MV_F32, NULL));
  expect_ok(mv_table_get(table, &got, 1, MV_F32, NULL));
  assert_true(got == 2);
}
static void a_time_out_names_the_missing_workers_and_changes_nothing(void** state) {
  (void)state;
  run_nodes(2, NULL, one_is_late);
}

static void alone_every_add_is_a_round(void** state) {
  (void)state;
  mv_table table = 0;
  float got = 0;
  const float two = 2;
  expect_ok(mv_init_text(""));
  expect_ok(mv_table_create_text(0, "size=1 merge=1 updater=assign", NULL, 0, MV_F32, &table));
  expect_ok(mv_table_add(table, &two, 1, MV_F32, NULL));
  expect_ok(mv_table_get(table, &got, 1, MV_F32, NULL));
  assert_true(got == 2);
  expect_error(mv_table_create_text(0, "size=1 merge=1 staleness=2", NULL, 0, MV_F32, &table), MV_EINVAL, "staleness");
  expect_ok(mv_shutdown(0));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_get_holds_its_rounds_whole),
      cmocka_unit_test(rows_are_merged),
      cmocka_unit_test(long_rows_are_merged),
      cmocka_unit_test(asynchronous_calls_keep_their_order),
      cmocka_unit_test(rounds_continue_without_a_worker_that_has_left),
      cmocka_unit_test(a_time_out_names_the_missing_workers_and_changes_nothing),
      cmocka_unit_test(alone_every_add_is_a_round),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
