/* Sparse and key-value tables: they store only changed rows, find them by id, scan them, and erase them. */
#include <math.h>
#include <stdlib.h>

#include "nodes.h"

static mv_table_info describe(mv_table table) {
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_ok(mv_table_describe(table, &info));
  return info;
}

/* ------------------------------------------------------------ rows that are not stored */

static void what_was_never_changed_has_its_initial_value(void** state) {
  (void)state;
  const mv_table tables[] = {create_table("kind=sparse rows=1000000000000 cols=2 initial=0.5"),
                             create_table("kind=keyvalue cols=2 initial=0.5")};
  for (size_t i = 0; i < COUNT_OF(tables); ++i) {
    const int64_t rows[3] = {999999999999, 0, 999999999999};
    const float add[2] = {1, 2};
    float got[6];
    expect_ok(mv_table_get_rows(tables[i], rows, 3, got, 6, MV_F32, NULL));
    for (int k = 0; k < 6; ++k) assert_true(got[k] == 0.5f);
    assert_int_equal(describe(tables[i]).stored, 0); /* a get does not store */
    expect_ok(mv_table_add_rows(tables[i], rows, 1, add, 2, MV_F32, NULL));
    expect_ok(mv_table_peek_rows(tables[i], rows, 3, got, 6, MV_F32, NULL));
    const float expected[6] = {1.5f, 2.5f, 0.5f, 0.5f, 1.5f, 2.5f};
    assert_memory_equal(got, expected, sizeof(got));
    const mv_table_info info = describe(tables[i]);
    assert_int_equal(info.stored, 1);
    assert_true(info.memory_bytes >= 2 * sizeof(float) && info.state_bytes == 0);
  }
}

static void random_initial_values_depend_on_seed_id_and_column(void** state) {
  (void)state;
  enum { kRows = 500, kCols = 4, kAll = kRows * kCols };
  static float one[kAll], same[kAll], other[kAll];
  int64_t rows[kRows];
  for (int i = 0; i < kRows; ++i) rows[i] = i;
  const mv_table sparse = create_table("kind=sparse rows=500 cols=4 initial=1 initial_range=0.25 seed=7");
  const mv_table keys = create_table("kind=keyvalue cols=4 initial=1 initial_range=0.25 seed=7");
  const mv_table reseeded = create_table("kind=keyvalue cols=4 initial=1 initial_range=0.25 seed=8");
  expect_ok(mv_table_get(sparse, one, kAll, MV_F32, NULL));
  expect_ok(mv_table_get_rows(keys, rows, kRows, same, kAll, MV_F32, NULL));
  expect_ok(mv_table_get_rows(reseeded, rows, kRows, other, kAll, MV_F32, NULL));
  assert_memory_equal(one, same, sizeof(one));
  double sum = 0;
  int differing = 0;
  for (int i = 0; i < kAll; ++i) {
    assert_true(one[i] >= 0.75f && one[i] <= 1.25f);
    sum += one[i];
    differing += one[i] != other[i];
  }
  assert_true(fabs(sum / kAll - 1) < 0.02); /* the standard error of the mean is 0.0032 */
  assert_true(differing > kAll * 9 / 10);
  /* Stored rows began with the same values. */
  const float nothing[kCols] = {0};
  expect_ok(mv_table_add_rows(keys, rows, 1, nothing, kCols, MV_F32, NULL));
  expect_ok(mv_table_get_rows(keys, rows, 1, same, kCols, MV_F32, NULL));
  assert_memory_equal(one, same, kCols * sizeof(float));
}

/* ------------------------------------------------------------ keys and rows */

static void any_64_bit_integer_is_a_key(void** state) {
  (void)state;
  const mv_table table = create_table("kind=keyvalue dtype=i64");
  const int64_t keys[7] = {0, -1, INT64_MAX, INT64_MIN, 1, -1, INT64_MAX}, add[7] = {1, 2, 3, 4, 5, 20, 30};
  int64_t got[7];
  expect_ok(mv_table_add_rows(table, keys, 7, add, 7, MV_I64, NULL)); /* repeats add up */
  expect_ok(mv_table_get_rows(table, keys, 7, got, 7, MV_I64, NULL));
  const int64_t sums[7] = {1, 22, 33, 4, 5, 22, 33};
  assert_memory_equal(got, sums, sizeof(got));
  assert_int_equal(describe(table).stored, 5);
  expect_ok(mv_table_set_rows(table, keys, 7, add, 7, MV_I64, NULL)); /* the last one counts */
  expect_ok(mv_table_get_rows(table, keys, 7, got, 7 * sizeof(int64_t), MV_RAW, NULL));
  const int64_t last[7] = {1, 20, 30, 4, 5, 20, 30};
  assert_memory_equal(got, last, sizeof(got));
}

static void a_hundred_thousand_keys_are_all_found_again(void** state) {
  (void)state;
  enum { kKeys = 100000, kBatch = 1000 };
  const mv_table table = create_table("kind=keyvalue dtype=i64");
  int64_t keys[kBatch], values[kBatch];
  for (int round = 0; round < 2; ++round) {
    for (int64_t first = 0; first < kKeys; first += kBatch) {
      for (int64_t i = 0; i < kBatch; ++i) {
        keys[i] = (first + i) * (first + i) * ((first + i) % 2 ? -1 : 1); /* clustered, spread, and of both signs */
        values[i] = first + i;
      }
      expect_ok(mv_table_add_rows(table, keys, kBatch, values, kBatch, MV_I64, NULL));
    }
  }
  assert_int_equal(describe(table).stored, kKeys);
  for (int64_t i = 0; i < kKeys; i += 97) {
    const int64_t key = i * i * (i % 2 ? -1 : 1);
    int64_t got = -1;
    expect_ok(mv_table_get_rows(table, &key, 1, &got, 1, MV_I64, NULL));
    assert_int_equal(got, 2 * i);
  }
}

static void mismatched_arguments_are_refused(void** state) {
  (void)state;
  const mv_table sparse = create_table("name=s kind=sparse rows=10 cols=2"),
                 keys = create_table("name=k kind=keyvalue cols=2");
  const int64_t beyond = 10, negative = -1, good = 3;
  float values[20] = {0};
  expect_error(mv_table_add_rows(sparse, &beyond, 1, values, 2, MV_F32, NULL), MV_ERANGE, "row 10 is outside 0 .. 9");
  expect_error(mv_table_set_rows(sparse, &negative, 1, values, 2, MV_F32, NULL), MV_ERANGE, "-1");
  expect_error(mv_table_get_rows(sparse, &beyond, 1, values, 2, MV_F32, NULL), MV_ERANGE, "10");
  expect_error(mv_table_peek_rows(sparse, &beyond, 1, values, 2, MV_F32, NULL), MV_ERANGE, "10");
  expect_error(mv_table_erase_rows(sparse, &beyond, 1, NULL), MV_ERANGE, "10");
  expect_error(mv_table_add_rows(sparse, &good, 1, values, 3, MV_F32, NULL), MV_ESHAPE, "s");
  expect_error(mv_table_add_rows(keys, &good, 1, values, 1, MV_F32, NULL), MV_ESHAPE, "k");
  expect_error(mv_table_add_rows(keys, &good, 1, values, 2, MV_I32, NULL), MV_EDTYPE, "i32");
  expect_error(mv_table_add_rows(keys, NULL, 1, values, 2, MV_F32, NULL), MV_EINVAL, "rows is NULL");
  expect_error(mv_table_add(keys, values, 2, MV_F32, NULL), MV_EINVAL, "name the keys");
  expect_error(mv_table_get(keys, values, 2, MV_F32, NULL), MV_EINVAL, "name the keys");
  expect_error(mv_table_set(keys, values, 2, MV_F32, NULL), MV_EINVAL, "name the keys");
  expect_error(mv_table_peek(keys, values, 2, MV_F32, NULL), MV_EINVAL, "name the keys");
  assert_int_equal(describe(sparse).stored + describe(keys).stored, 0);
  const mv_table strict = create_table("kind=keyvalue reject_nonfinite=1");
  const float bad = NAN;
  expect_error(mv_table_add_rows(strict, &good, 1, &bad, 1, MV_F32, NULL), MV_ENONFINITE, "");
  expect_error(mv_table_set_rows(strict, &good, 1, &bad, 1, MV_F32, NULL), MV_ENONFINITE, "");
  expect_ok(mv_table_add_rows(keys, NULL, 0, NULL, 0, MV_F32, NULL));
  expect_ok(mv_table_get_rows(keys, NULL, 0, NULL, 0, MV_F32, NULL));
}

static void a_whole_sparse_matrix_is_all_its_rows(void** state) {
  (void)state;
  const mv_table table = create_table("kind=sparse rows=3 cols=2 initial=1");
  const float add[6] = {0, 1, 2, 3, 4, 5};
  float got[6];
  const int64_t last = 2;
  expect_ok(mv_table_add_rows(table, &last, 1, add, 2, MV_F32, NULL));
  expect_ok(mv_table_get(table, got, 6, MV_F32, NULL));
  const float one_changed[6] = {1, 1, 1, 1, 1, 2};
  assert_memory_equal(got, one_changed, sizeof(got));
  expect_ok(mv_table_add(table, add, 6, MV_F32, NULL));
  expect_ok(mv_table_peek(table, got, 6, MV_F32, NULL));
  const float all_changed[6] = {1, 2, 3, 4, 5, 7};
  assert_memory_equal(got, all_changed, sizeof(got));
  assert_int_equal(describe(table).stored, 3);
}

static void specs_that_can_not_be_are_refused(void** state) {
  (void)state;
  mv_table table = 77;
#define REFUSE(text, part) expect_error(mv_table_create_text(0, text, NULL, 0, MV_F32, &table), MV_EINVAL, part)
  REFUSE("kind=keyvalue rows=5", "no fixed rows; 5 given");
  REFUSE("kind=sparse cols=2", "no elements");
  REFUSE("kind=sparse rows=5 cols=2 capacity=3", "capacity is for key-value tables");
  REFUSE("size=5 initial=1", "for sparse and key-value tables");
  REFUSE("kind=matrix rows=5 cols=2 seed=1", "for sparse and key-value tables");
  REFUSE("kind=keyvalue initial=nan", "initial");
  REFUSE("kind=keyvalue initial_range=-1", "range of at least 0");
  REFUSE("kind=keyvalue dtype=i32 initial=0.5", "i32 can't represent initial=0.5");
  REFUSE("kind=keyvalue dtype=u8 initial_range=1", "u8 can't represent");
  REFUSE("kind=keyvalue capacity=-1", "capacity");
  REFUSE("kind=keyvalue cols=1000000", "a row of a sparse or key-value table has at most 1048576");
#undef REFUSE
  assert_int_equal(table, 77);
  create_table("kind=keyvalue dtype=i32 initial=-3");
}

/* ------------------------------------------------------------ erase */

static void erased_rows_are_as_they_began(void** state) {
  (void)state;
  const mv_table table = create_table("kind=keyvalue initial=10 updater=\"momentum rate=1 momentum=1\"");
  const int64_t keys[3] = {-5, 6, 7};
  const float one[3] = {1, 1, 1};
  float got[3];
  expect_ok(mv_table_add_rows(table, keys, 3, one, 3, MV_F32, NULL));
  expect_ok(mv_table_add_rows(table, keys, 3, one, 3, MV_F32, NULL));
  expect_ok(mv_table_erase_rows(table, keys, 2, NULL));
  expect_ok(mv_table_erase_rows(table, keys, 1, NULL)); /* rows that are not stored are skipped */
  expect_ok(mv_table_erase_rows(table, NULL, 0, NULL));
  expect_ok(mv_table_get_rows(table, keys, 3, got, 3, MV_F32, NULL));
  const float expected[3] = {10, 10, 10 - 1 - 2};
  assert_memory_equal(got, expected, sizeof(got));
  assert_int_equal(describe(table).stored, 1);
  expect_ok(mv_table_add_rows(table, keys, 3, one, 3, MV_F32, NULL)); /* the erased velocities start from zero */
  expect_ok(mv_table_get_rows(table, keys, 3, got, 3, MV_F32, NULL));
  const float again[3] = {9, 9, 7 - 3};
  assert_memory_equal(got, again, sizeof(got));
}

static void erase_is_a_call_like_an_add(void** state) {
  (void)state;
  const mv_table table = create_table("kind=sparse rows=100 cols=1"), dense = create_table("size=100");
  const int64_t rows[2] = {3, 4};
  const float ones[2] = {1, 1};
  float got[2];
  mv_request request = 0;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_ASYNC;
  options.request = &request;
  expect_ok(mv_table_add_rows(table, rows, 2, ones, 2, MV_F32, NULL));
  expect_ok(mv_table_erase_rows(table, rows, 1, &options));
  expect_ok(mv_request_wait(request, 0));
  options.flags = MV_FORGET;
  expect_ok(mv_table_erase_rows(table, rows + 1, 1, &options));
  expect_ok(mv_table_add_rows(table, rows, 1, ones, 1, MV_F32, &options));
  expect_ok(mv_barrier(0, NULL));
  expect_ok(mv_table_get_rows(table, rows, 2, got, 2, MV_F32, NULL));
  assert_true(got[0] == 1 && got[1] == 0);
  expect_error(mv_table_erase_rows(dense, rows, 2, NULL), MV_EINVAL, "can't be erased");
  expect_error(mv_table_erase_rows(table, NULL, 2, NULL), MV_EINVAL, "rows is NULL");
  options.flags = 8;
  expect_error(mv_table_erase_rows(table, rows, 2, &options), MV_EINVAL, "0x8");
}

/* ------------------------------------------------------------ scan */

enum { kScanned = 10000 };

/** Scans by `capacity` rows. Counts in seen[] how often each id of 0 .. kScanned - 1 came; returns the number of other ids. */
static int scan_all(mv_table table, uint64_t capacity, int seen[kScanned]) {
  int64_t ids[512], cursor = 0;
  double values[512 * 2];
  int others = 0;
  memset(seen, 0, kScanned * sizeof(*seen));
  while (cursor != -1) {
    uint64_t found = 77777;
    expect_ok(mv_table_scan(table, cursor, ids, capacity, values, capacity * 2, MV_F64, &cursor, &found));
    assert_true(found <= capacity && cursor >= -1);
    for (uint64_t i = 0; i < found; ++i) {
      const int is_ours = ids[i] >= 0 && ids[i] < kScanned;
      if (is_ours) ++seen[ids[i]];
      others += !is_ours;
      assert_true(values[2 * i] == (double)ids[i] && values[2 * i + 1] == -(double)ids[i]);
    }
  }
  return others;
}

static void set_keys(mv_table table, int64_t first, int64_t count) {
  for (int64_t at = first; at < first + count; ++at) {
    const double values[2] = {(double)at, -(double)at};
    expect_ok(mv_table_set_rows(table, &at, 1, values, 2, MV_F64, NULL));
  }
}

static void a_scan_gives_each_stored_row_once(void** state) {
  (void)state;
  static int seen[kScanned];
  const mv_table tables[] = {create_table("kind=keyvalue cols=2 dtype=f64"),
                             create_table("kind=sparse rows=1000000000 cols=2 dtype=f64")};
  const uint64_t capacities[] = {1, 7, 512};
  for (size_t i = 0; i < COUNT_OF(tables); ++i) {
    assert_int_equal(scan_all(tables[i], 7, seen), 0);
    set_keys(tables[i], 0, kScanned);
    for (size_t k = 0; k < COUNT_OF(capacities); ++k) {
      assert_int_equal(scan_all(tables[i], capacities[k], seen), 0);
      for (int id = 0; id < kScanned; ++id) assert_int_equal(seen[id], 1);
    }
  }
}

static void what_stays_is_given_once_while_others_come_and_go(void** state) {
  (void)state;
  static int seen[kScanned];
  const mv_table table = create_table("kind=keyvalue cols=2 dtype=f64");
  set_keys(table, 0, kScanned);
  memset(seen, 0, sizeof(seen));
  int64_t ids[64], cursor = 0, coming = kScanned;
  uint64_t found = 0;
  while (cursor != -1) {
    expect_ok(mv_table_scan(table, cursor, ids, 64, NULL, 0, MV_F64, &cursor, &found)); /* ids only */
    for (uint64_t i = 0; i < found; ++i)
      if (ids[i] < kScanned) ++seen[ids[i]];
    if (coming < 5 * kScanned) set_keys(table, coming, 100); /* the index grows meanwhile */
    coming += 100;
    const int64_t going = (coming / 100) % 50; /* the first fifty are erased */
    expect_ok(mv_table_erase_rows(table, &going, 1, NULL));
  }
  for (int id = 0; id < 50; ++id) assert_true(seen[id] <= 1);
  for (int id = 50; id < kScanned; ++id) assert_int_equal(seen[id], 1);
}

static void scans_check_their_arguments(void** state) {
  (void)state;
  const mv_table table = create_table("kind=keyvalue cols=2"), dense = create_table("size=3");
  int64_t ids[4], next = 77;
  uint64_t found = 77;
  float values[8];
  expect_error(mv_table_scan(table, 0, NULL, 4, values, 8, MV_F32, &next, &found), MV_EINVAL, "rows is NULL");
  expect_error(mv_table_scan(table, 0, ids, 4, NULL, 8, MV_F32, &next, &found), MV_EINVAL, "data is NULL");
  expect_error(mv_table_scan(table, 0, ids, 4, values, 8, MV_F32, NULL, &found), MV_EINVAL, "NULL");
  expect_error(mv_table_scan(table, 0, ids, 4, values, 8, MV_F32, &next, NULL), MV_EINVAL, "NULL");
  expect_error(mv_table_scan(table, 0, ids, 4, values, 7, MV_F32, &next, &found), MV_ESHAPE, "");
  expect_error(mv_table_scan(table, 0, ids, 4, values, 8, MV_F64, &next, &found), MV_EDTYPE, "");
  expect_error(mv_table_scan(table, 0, ids, 4, values, 8, 99, &next, &found), MV_EINVAL, "99");
  expect_error(mv_table_scan(table, 0, ids, 0, NULL, 0, MV_F32, &next, &found), MV_EINVAL, "");
  expect_error(mv_table_scan(table, -2, ids, 4, values, 8, MV_F32, &next, &found), MV_EINVAL, "-2");
  expect_error(mv_table_scan(table, INT64_MAX, ids, 4, values, 8, MV_F32, &next, &found), MV_EINVAL, "");
  expect_error(mv_table_scan(dense, 0, ids, 4, values, 4, MV_F32, &next, &found), MV_EINVAL, "");
  expect_error(mv_table_scan(12345, 0, ids, 4, values, 8, MV_F32, &next, &found), MV_EHANDLE, "12345");
  assert_true(next == 77 && found == 77);
  expect_ok(mv_table_scan(table, 0, ids, 4, values, 8 * sizeof(float), MV_RAW, &next, &found));
  assert_true(next == -1 && found == 0);
}

/* ------------------------------------------------------------ capacity */

static void beyond_its_capacity_a_table_drops_what_was_used_least_recently(void** state) {
  (void)state;
  enum { kCapacity = 100 };
  const mv_table table = create_table("kind=keyvalue capacity=100");
  const float one = 1;
  float got = 0;
  const int64_t used = -1;
  for (int64_t key = 0; key < 10 * kCapacity; ++key) {
    expect_ok(mv_table_add_rows(table, &key, 1, &one, 1, MV_F32, NULL));
    expect_ok(mv_table_add_rows(table, &used, 1, &one, 1, MV_F32, NULL));
    assert_true(describe(table).stored <= kCapacity);
  }
  expect_ok(mv_table_get_rows(table, &used, 1, &got, 1, MV_F32, NULL));
  assert_true(got == 10 * kCapacity);
  const int64_t first = 0, newest = 10 * kCapacity - 1;
  expect_ok(mv_table_get_rows(table, &first, 1, &got, 1, MV_F32, NULL));
  assert_true(got == 0); /* it has its initial value again */
  expect_ok(mv_table_get_rows(table, &newest, 1, &got, 1, MV_F32, NULL));
  assert_true(got == 1);
}

/* ------------------------------------------------------------ several nodes */

enum { kNodes = 3, kKeys = 2000 };

static void share_keys(struct member* self) {
  const mv_table keys = create_on(self, "name=k kind=keyvalue dtype=i64 cols=2"),
                 sparse = create_on(self, "name=s kind=sparse rows=100000 cols=2 dtype=i64");
  const mv_table both[] = {keys, sparse};
  for (int64_t i = 0; i < kKeys; ++i) {
    const int64_t row = i * 37 % 100000, values[2] = {self->index + 1, i};
    mv_call_options forget = MV_CALL_OPTIONS_INIT;
    forget.flags = MV_FORGET;
    for (int t = 0; t < 2; ++t)
      expect_ok(mv_table_add_rows(both[t], &row, 1, values, 2, MV_I64, i % 2 ? &forget : NULL));
  }
  expect_ok(mv_barrier(self->node, NULL));
  for (int t = 0; t < 2; ++t) {
    int64_t ids[100], values[200], cursor = 0, rows = 0;
    uint64_t found = 0;
    while (cursor != -1) {
      expect_ok(mv_table_scan(both[t], cursor, ids, 100, values, 200, MV_I64, &cursor, &found));
      for (uint64_t i = 0; i < found; ++i)
        assert_true(values[2 * i] == 1 + 2 + 3 && values[2 * i + 1] == kNodes * (ids[i] / 37));
      rows += (int64_t)found;
    }
    assert_int_equal(rows, kKeys);
    assert_int_equal(describe(both[t]).stored, kKeys);
  }
  expect_ok(mv_barrier(self->node, NULL));
  const int64_t gone[3] = {0, 37, 74};
  if (self->index == 0) expect_ok(mv_table_erase_rows(keys, gone, 3, NULL));
  expect_ok(mv_barrier(self->node, NULL));
  int64_t values[6];
  expect_ok(mv_table_get_rows(keys, gone, 3, values, 6, MV_I64, NULL));
  for (int i = 0; i < 6; ++i) assert_int_equal(values[i], 0);
  assert_int_equal(describe(keys).stored, kKeys - 3);
}
static void keys_are_spread_over_the_servers_and_shared_by_the_workers(void** state) {
  (void)state;
  run_nodes(kNodes, NULL, share_keys);
}

static void add_in_step(struct member* self) {
  const mv_table table = create_on(self, "name=k kind=keyvalue updater=\"adagrad rate=0.1\"");
  const int64_t keys[3] = {7, -7, 1000 + self->index};
  float mine[3], before[3] = {0};
  for (int round = 0; round < 20; ++round) {
    const float add[3] = {0.1f * (float)(self->index + 1), 1.0f / (float)(round + self->index + 1), 1};
    expect_ok(mv_table_add_rows(table, keys, 3, add, 3, MV_F32, NULL));
    expect_ok(mv_table_get_rows(table, keys, 3, mine, 3, MV_F32, NULL));
    /* The number that only this worker adds to has moved by exactly one step, in step with all the others. */
    assert_true(mine[2] < before[2]);
    memcpy(before, mine, sizeof(mine));
  }
  static float seen[kNodes][2];
  memcpy(seen[self->index], mine, sizeof(seen[0]));
  expect_ok(mv_barrier(self->node, NULL));
  for (int other = 0; other < kNodes; ++other) assert_memory_equal(seen[other], seen[self->index], sizeof(seen[0]));
}
static void sync_mode_gives_the_same_bits_of_keys_too(void** state) {
  (void)state;
  run_nodes(kNodes, "sync=1", add_in_step);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_ALONE(what_was_never_changed_has_its_initial_value),
      TEST_ALONE(random_initial_values_depend_on_seed_id_and_column),
      TEST_ALONE(any_64_bit_integer_is_a_key),
      TEST_ALONE(a_hundred_thousand_keys_are_all_found_again),
      TEST_ALONE(mismatched_arguments_are_refused),
      TEST_ALONE(a_whole_sparse_matrix_is_all_its_rows),
      TEST_ALONE(specs_that_can_not_be_are_refused),
      TEST_ALONE(erased_rows_are_as_they_began),
      TEST_ALONE(erase_is_a_call_like_an_add),
      TEST_ALONE(a_scan_gives_each_stored_row_once),
      TEST_ALONE(what_stays_is_given_once_while_others_come_and_go),
      TEST_ALONE(scans_check_their_arguments),
      TEST_ALONE(beyond_its_capacity_a_table_drops_what_was_used_least_recently),
      cmocka_unit_test(keys_are_spread_over_the_servers_and_shared_by_the_workers),
      cmocka_unit_test(sync_mode_gives_the_same_bits_of_keys_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
