/* Small fire-and-forget changes share messages; nobody may notice. Node 1 changes a row that node 0 serves. */
#include <pthread.h>
#include <stdlib.h>

#include "nodes.h"

enum { kSteps = 3000, kThreads = 3, kCols = 2 };

static const int64_t row = 0; /* of server 0: the table has a row for each server */

static mv_call_options forgotten(void) {
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_FORGET;
  return options;
}

static void add(mv_table table, float value) {
  const float values[kCols] = {value, -value};
  const mv_call_options forget = forgotten();
  expect_ok(mv_table_add_rows(table, &row, 1, values, kCols, MV_F32, &forget));
}

/* Begins it, and does not wait. */
static mv_request set(mv_table table, float value) {
  const float values[kCols] = {value, -value};
  mv_call_options later = MV_CALL_OPTIONS_INIT;
  mv_request request = 0;
  later.flags = MV_ASYNC;
  later.request = &request;
  expect_ok(mv_table_set_rows(table, &row, 1, values, kCols, MV_F32, &later));
  return request;
}

/* ------------------------------------------------------------ order */

/* Adds, sets and asynchronous gets in random order: each get has exactly what was called before it. */
static void* mix(void* argument) {
  const mv_table table = *(mv_table*)argument;
  float(*got)[kCols] = calloc(kSteps, sizeof(*got));
  mv_request requests[kSteps], sets[kSteps];
  float expected[kSteps], value = 0;
  unsigned random = (unsigned)table;
  int gets = 0, set_count = 0;
  for (int i = 0; i < kSteps; ++i) {
    random = random * 1103515245u + 12345u;
    const unsigned choice = (random >> 16) % 16;
    if (choice == 0) {
      sets[set_count++] = set(table, value = (float)(i % 100));
    } else if (choice < 4) {
      mv_call_options later = MV_CALL_OPTIONS_INIT;
      later.flags = MV_ASYNC;
      later.request = &requests[gets];
      expect_ok(mv_table_get_rows(table, &row, 1, got[gets], kCols, MV_F32, &later));
      expected[gets++] = value;
    } else {
      add(table, 1);
      value += 1;
    }
  }
  for (int i = 0; i < gets; ++i) {
    expect_ok(mv_request_wait(requests[i], 0));
    assert_true(got[i][0] == expected[i] && got[i][1] == -expected[i]);
  }
  for (int i = 0; i < set_count; ++i) expect_ok(mv_request_wait(sets[i], 0));
  free(got);
  return NULL;
}

static void mix_in_threads(struct member* self) {
  mv_table tables[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    char spec[64];
    snprintf(spec, sizeof(spec), "name=t%d kind=matrix rows=2 cols=2", i);
    tables[i] = create_on(self, spec);
  }
  if (self->index == 1) {
    pthread_t threads[kThreads];
    for (int i = 0; i < kThreads; ++i) assert_int_equal(pthread_create(&threads[i], NULL, mix, &tables[i]), 0);
    for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  }
  expect_ok(mv_barrier(self->node, NULL));
}
static void calls_of_a_thread_keep_their_order(void** state) {
  (void)state;
  run_nodes(2, NULL, mix_in_threads);
}

/* ------------------------------------------------------------ each counts */

/* Threads share one table: their changes share messages, and all are there. */
static void* add_many(void* argument) {
  for (int i = 0; i < kSteps; ++i) add(*(mv_table*)argument, 1);
  return NULL;
}
static void add_in_threads(struct member* self) {
  mv_table table = create_on(self, "name=t kind=matrix rows=2 cols=2");
  pthread_t threads[kThreads];
  if (self->index == 1) {
    for (int i = 0; i < kThreads; ++i) assert_int_equal(pthread_create(&threads[i], NULL, add_many, &table), 0);
    for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  }
  expect_ok(mv_barrier(self->node, NULL));
  float got[kCols];
  expect_ok(mv_table_get_rows(table, &row, 1, got, kCols, MV_F32, NULL));
  assert_true(got[0] == (float)(kThreads * kSteps) && got[1] == -got[0]);
  expect_ok(mv_barrier(self->node, NULL));
}
static void adds_of_many_threads_are_all_there(void** state) {
  (void)state;
  run_nodes(2, NULL, add_in_threads);
}

/* An optimizer that counts its steps: the same bits as with one message for each add. */
static void train(struct member* self) {
  const char* specs[2] = {"name=together kind=matrix rows=2 cols=2 updater=mx.adam", "name=apart kind=matrix rows=2 cols=2 updater=mx.adam"};
  float got[2][kCols];
  for (int i = 0; i < 2; ++i) {
    const mv_table table = create_on(self, specs[i]);
    for (int step = 0; self->index == 1 && step < 500; ++step) {
      const float values[kCols] = {0.25f * (float)(step % 7 - 3), 1.0f / (float)(step + 1)};
      const mv_call_options forget = forgotten();
      expect_ok(mv_table_add_rows(table, &row, 1, values, kCols, MV_F32, i == 0 ? &forget : NULL));
    }
    expect_ok(mv_barrier(self->node, NULL));
    expect_ok(mv_table_get_rows(table, &row, 1, got[i], kCols, MV_F32, NULL));
  }
  assert_true(got[0][0] != 0);
  assert_memory_equal(got[0], got[1], sizeof(got[0]));
  expect_ok(mv_barrier(self->node, NULL));
}
static void updates_are_counted_one_by_one(void** state) {
  (void)state;
  run_nodes(2, NULL, train);
}

/* Rows of a keyed table: changes of one and of two rows, and erasures between them. */
static void change_keys(struct member* self) {
  const mv_table table = create_on(self, "name=k kind=keyvalue cols=2");
  const mv_call_options forget = forgotten();
  const float ones[4] = {1, 1, 1, 1};
  for (int64_t i = 0; self->index == 1 && i < 1000; ++i) {
    const int64_t keys[2] = {i % 10, i % 10 + 100};
    expect_ok(mv_table_add_rows(table, keys, i % 3 == 0 ? 2 : 1, ones, i % 3 == 0 ? 4 : 2, MV_F32, &forget));
    if (i % 10 == 9) expect_ok(mv_table_erase_rows(table, keys, 1, NULL));
  }
  expect_ok(mv_barrier(self->node, NULL));
  float got[2];
  const int64_t erased = 9, kept = 8, second = 108;
  expect_ok(mv_table_get_rows(table, &erased, 1, got, 2, MV_F32, NULL));
  assert_true(got[0] == 0 && got[1] == 0);
  expect_ok(mv_table_get_rows(table, &kept, 1, got, 2, MV_F32, NULL));
  assert_true(got[0] == 100 && got[1] == 100);
  expect_ok(mv_table_get_rows(table, &second, 1, got, 2, MV_F32, NULL));
  assert_true(got[0] == 33 && got[1] == 33); /* i = 8 + 10 n, and divisible by 3 */
  expect_ok(mv_barrier(self->node, NULL));
}
static void keyed_tables_take_them_too(void** state) {
  (void)state;
  run_nodes(2, NULL, change_keys);
}

/* A worker's clock moves after the adds that were called before it. */
static void step_with_staleness(struct member* self) {
  const mv_table table = create_on(self, "name=s kind=matrix rows=2 cols=2 staleness=1");
  float got[kCols];
  for (int i = 1; i <= 200; ++i) {
    for (int k = 0; k < 5; ++k) add(table, 1);
    expect_ok(mv_table_clock(table));
    expect_ok(mv_table_get_rows(table, &row, 1, got, kCols, MV_F32, NULL));
    assert_true(got[0] >= (float)(5 * i + 5 * (i - 1))); /* its own, and the other worker's but those of one iteration */
  }
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(mv_table_get_rows(table, &row, 1, got, kCols, MV_F32, NULL));
  assert_true(got[0] == 2000);
  expect_ok(mv_barrier(self->node, NULL));
}
static void clocks_come_after_the_adds_before_them(void** state) {
  (void)state;
  run_nodes(2, NULL, step_with_staleness);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(calls_of_a_thread_keep_their_order), cmocka_unit_test(adds_of_many_threads_are_all_there),
      cmocka_unit_test(updates_are_counted_one_by_one),     cmocka_unit_test(keyed_tables_take_them_too),
      cmocka_unit_test(clocks_come_after_the_adds_before_them),
  };
  return cmocka_run_group_tests_name("small_changes", tests, NULL, NULL);
}
