/* Stale-synchronous tables: the fastest worker's get waits for workers that are more than s clocks behind. */
#include <time.h>

#include "nodes.h"

enum { kNodes = 3, kRounds = 40 };

static int flags[8]; /* events of one thread for which another waits */

static void set_flag(int which) { __atomic_store_n(&flags[which], 1, __ATOMIC_RELEASE); }
static void wait_for_flag(int which) {
  const struct timespec pause = {0, 2000000};
  while (!__atomic_load_n(&flags[which], __ATOMIC_ACQUIRE)) nanosleep(&pause, NULL);
}
static int clear_flags(void** state) {
  (void)state;
  memset(flags, 0, sizeof(flags));
  return 0;
}

static float get_one(mv_table table) {
  float got = -1;
  expect_ok(mv_table_get(table, &got, 1, MV_F32, NULL));
  return got;
}

/* ------------------------------------------------------------ which worker waits for which */

/** Worker 0 does nothing until it is told to; staleness 2. */
static void run_ahead(struct member* self) {
  const mv_table table = create_on(self, "size=1 name=w staleness=2");
  const float one = 1;
  float got = -1;
  if (self->index == 0) {
    wait_for_flag(0);
    const float hundred = 100;
    expect_ok(mv_table_add(table, &hundred, 1, MV_F32, NULL));
    expect_ok(mv_table_clock(table));
    wait_for_flag(1);
    expect_ok(mv_table_clock(table));
  } else if (self->index == 1) {
    for (int clock = 0; clock < 3; ++clock) { /* until clock 2, no other worker needs to have done anything */
      expect_ok(mv_table_add(table, &one, 1, MV_F32, NULL));
      assert_true(get_one(table) == (float)(clock + 1)); /* its own adds are always there */
      expect_ok(mv_table_clock(table));
    }
    mv_call_options soon = MV_CALL_OPTIONS_INIT;
    soon.timeout_ms = 100;
    expect_error(mv_table_get(table, &got, 1, MV_F32, &soon), MV_ETIMEOUT, "0");
    expect_ok(mv_table_peek(table, &got, 1, MV_F32, NULL)); /* bypasses the gate */
    assert_true(got == 3);
    mv_table_info info = MV_TABLE_INFO_INIT;
    expect_ok(mv_table_describe(table, &info));
    assert_true(info.clock == 3); /* a get that timed out has changed nothing */
    set_flag(0);
    assert_true(get_one(table) == 103); /* worker 0's adds of clock 0 are in it */
    expect_ok(mv_table_clock(table));
    expect_error(mv_table_get(table, &got, 1, MV_F32, &soon), MV_ETIMEOUT, "0");
    set_flag(1);
    assert_true(get_one(table) == 103);
    set_flag(2);
  } else {
    for (int clock = 0; clock < 4; ++clock) expect_ok(mv_table_clock(table)); /* never waits */
    wait_for_flag(2);
  }
  expect_ok(mv_barrier(self->node, NULL));
}
static void the_fastest_waits_for_one_that_is_more_than_s_behind(void** state) {
  (void)state;
  run_nodes(kNodes, NULL, run_ahead);
}

static void several_ways(struct member* self) {
  const char* const specs[] = {"name=a size=30 staleness=1", "name=m kind=matrix rows=10 cols=3 staleness=1",
                               "name=s kind=sparse rows=10 cols=3 staleness=1",
                               "name=k kind=keyvalue cols=3 staleness=1"};
  for (size_t t = 0; t < COUNT_OF(specs); ++t) {
    const mv_table table = create_on(self, specs[t]);
    const int64_t rows[3] = {9, 0, 4};
    const uint64_t count = t == 0 ? 3 : 9;
    float got[9];
    mv_call_options soon = MV_CALL_OPTIONS_INIT;
    soon.timeout_ms = 50;
    if (self->index == 0) {
      for (int clock = 0; clock < 2; ++clock) expect_ok(mv_table_clock(table));
      expect_error(mv_table_get_rows(table, rows, 3, got, count, MV_F32, &soon), MV_ETIMEOUT, "");
      mv_request request = 0;
      mv_call_options async = MV_CALL_OPTIONS_INIT;
      async.flags = MV_ASYNC;
      async.request = &request;
      expect_ok(mv_table_get_rows(table, rows, 3, got, count, MV_F32, &async));
      expect_error(mv_request_wait(request, 50), MV_ETIMEOUT, "");
      expect_ok(mv_table_peek_rows(table, rows, 3, got, count, MV_F32, NULL));
      set_flag((int)t);
      expect_ok(mv_request_wait(request, 0));
    } else {
      wait_for_flag((int)t);
      expect_ok(mv_table_clock(table));
    }
    expect_ok(mv_barrier(self->node, NULL));
  }
}
static void every_kind_of_table_and_of_get_waits(void** state) {
  (void)state;
  run_nodes(2, NULL, several_ways);
}

/* ------------------------------------------------------------ the bound, at any speed */

static int staleness_of_run;

static void keep_the_bound(struct member* self) {
  char spec[100];
  snprintf(spec, sizeof(spec), "name=w size=%d staleness=%d", kNodes, staleness_of_run);
  const mv_table table = create_on(self, spec);
  const int64_t own = self->index;
  const float one = 1;
  for (int clock = 1; clock <= kRounds; ++clock) {
    mv_call_options forget = MV_CALL_OPTIONS_INIT;
    forget.flags = MV_FORGET;
    float got[kNodes];
    if (self->index == 0 && clock % 8 == 0) { /* occasionally slow */
      const struct timespec pause = {0, 5000000};
      nanosleep(&pause, NULL);
    }
    expect_ok(mv_table_add_rows(table, &own, 1, &one, 1, MV_F32, clock % 2 ? &forget : NULL));
    expect_ok(mv_table_clock(table));
    expect_ok(mv_table_get(table, got, kNodes, MV_F32, NULL));
    for (int other = 0; other < kNodes; ++other) {
      assert_true(got[other] >= (float)(clock - staleness_of_run));     /* no worker's values are older */
      assert_true(got[other] <= (float)(clock + staleness_of_run + 1)); /* no worker is further ahead */
    }
    assert_true(got[own] == (float)clock);
  }
}
static void no_get_is_staler_than_allowed(void** state) {
  (void)state;
  const int values[] = {1, 2, 5};
  for (size_t i = 0; i < COUNT_OF(values); ++i) {
    staleness_of_run = values[i];
    run_nodes(kNodes, NULL, keep_the_bound);
  }
}

static void stop_early(struct member* self) {
  const mv_table table = create_on(self, "size=1 name=w staleness=1");
  const float one = 1;
  const int clocks = self->index == 2 ? 3 : 20;
  for (int clock = 0; clock < clocks; ++clock) {
    expect_ok(mv_table_add(table, &one, 1, MV_F32, NULL));
    expect_ok(mv_table_clock(table));
    get_one(table);
  }
  if (self->index == 2) return;
  expect_ok(mv_barrier(self->node, NULL));
  assert_true(get_one(table) == 43);
}
static void a_worker_that_has_finished_is_waited_for_no_more(void** state) {
  (void)state;
  run_nodes(kNodes, NULL, stop_early);
}

/* ------------------------------------------------------------ other consistency modes */

static float seen[kNodes][kRounds];

static void in_step(struct member* self) {
  const mv_table table = create_on(self, "size=1 name=w staleness=0");
  for (int round = 0; round < kRounds; ++round) {
    const float value = 1.0f / (float)(3 + round + 7 * self->index); /* another order would give other bits */
    expect_ok(mv_table_add(table, &value, 1, MV_F32, NULL));
    seen[self->index][round] = get_one(table);
  }
}
static void staleness_0_is_sync_mode_for_the_table(void** state) {
  (void)state;
  run_nodes(kNodes, "sync=0", in_step);
  for (int i = 1; i < kNodes; ++i) assert_memory_equal(seen[i], seen[0], sizeof(seen[0]));
}

static void alone_in_a_sync_cluster(struct member* self) {
  const mv_table table = create_on(self, "size=1 name=w staleness=1000");
  const float one = 1;
  if (self->index == 1) { /* in sync mode it would wait for the others here */
    for (int round = 1; round <= 10; ++round) {
      expect_ok(mv_table_add(table, &one, 1, MV_F32, NULL));
      assert_true(get_one(table) == (float)round);
      expect_ok(mv_table_clock(table));
    }
    set_flag(0);
  }
  wait_for_flag(0);
  expect_ok(mv_barrier(self->node, NULL));
}
static void a_staleness_beats_the_mode_of_the_node(void** state) {
  (void)state;
  run_nodes(kNodes, "sync=1", alone_in_a_sync_cluster);
}

static void clocks_only_count_elsewhere(void** state) {
  (void)state;
  expect_ok(mv_init(NULL));
  const mv_table table = create_table("size=1");
  mv_table_info info = MV_TABLE_INFO_INIT;
  for (int i = 0; i < 5; ++i) expect_ok(mv_table_clock(table));
  get_one(table);
  expect_ok(mv_table_describe(table, &info));
  assert_true(info.clock == 5 && info.staleness == MV_UNSET);
  expect_error(mv_table_clock(12345), MV_EHANDLE, "12345");
  expect_ok(mv_table_close(table));
  expect_error(mv_table_clock(table), MV_EHANDLE, "closed");
  mv_table wrong = 77;
  expect_error(mv_table_create_text(0, "size=1 staleness=-2", NULL, 0, MV_F32, &wrong), MV_EINVAL, "staleness=-2");
  expect_ok(mv_shutdown(0));
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup(function, clear_flags)
  const struct CMUnitTest tests[] = {
      TEST(the_fastest_waits_for_one_that_is_more_than_s_behind),
      TEST(every_kind_of_table_and_of_get_waits),
      TEST(no_get_is_staler_than_allowed),
      TEST(a_worker_that_has_finished_is_waited_for_no_more),
      TEST(staleness_0_is_sync_mode_for_the_table),
      TEST(a_staleness_beats_the_mode_of_the_node),
      TEST(clocks_only_count_elsewhere),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
