/* Several nodes in this process, one thread each: the guarantee of sync mode, the flush, signals, and shutdown. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "expect.h"

enum { kMost = 3, kElements = 257, kRounds = 25 };

struct member {
  int index, nodes, sync;
  char cluster[64];
  mv_node node;
  mv_table table;
  void (*body)(struct member* self);
  float gets[kRounds][kElements];
};

static struct member members[kMost];
static pthread_t threads[kMost];
static int32_t first_role = MV_ROLE_UNSET; /* the first member's, in the next cluster */

static void join_cluster(struct member* self) {
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.transport = "inproc";
  options.nodes = self->nodes;
  options.rank = self->index;
  if (self->index == 0) options.role = first_role;
  options.master = self->cluster;
  options.sync = self->sync;
  options.init_timeout_ms = 20000;
  options.gate_timeout_ms = 20000;
  expect_ok(mv_node_open(&options, &self->node));
  expect_ok(mv_table_create_text(self->node, "name=w size=257", NULL, 0, MV_F32, &self->table));
}

static void* live(void* argument) {
  struct member* self = argument;
  join_cluster(self);
  self->body(self);
  mv_status status = MV_EINTR;
  while (status == MV_EINTR) status = mv_shutdown(self->node); /* a late signal of a test */
  expect_ok(status);
  return NULL;
}

static void start_cluster(int nodes, int sync, void (*body)(struct member*)) {
  static int clusters = 0;
  ++clusters;
  for (int i = 0; i < nodes; ++i) {
    struct member* self = &members[i];
    memset(self, 0, sizeof(*self));
    self->index = i;
    self->nodes = nodes;
    self->sync = sync;
    self->body = body;
    snprintf(self->cluster, sizeof(self->cluster), "cluster-%d", clusters);
    assert_int_equal(pthread_create(&threads[i], NULL, live, self), 0);
  }
}
static void end_cluster(int nodes) {
  for (int i = 0; i < nodes; ++i) pthread_join(threads[i], NULL);
}
static void run_cluster(int nodes, int sync, void (*body)(struct member*)) {
  start_cluster(nodes, sync, body);
  end_cluster(nodes);
}

/* ------------------------------------------------------------------ ranks and roles */

static void check_place(struct member* self) {
  int64_t rank = -1, size = -1, workers = -1, servers = -1, worker = -1;
  int32_t master = -1, sync = -1;
  expect_ok(mv_rank(self->node, &rank));
  expect_ok(mv_size(self->node, &size));
  expect_ok(mv_num_workers(self->node, &workers));
  expect_ok(mv_num_servers(self->node, &servers));
  expect_ok(mv_worker_id(self->node, &worker));
  expect_ok(mv_is_master(self->node, &master));
  expect_ok(mv_is_sync(self->node, &sync));
  assert_true(rank == self->index && size == 3 && workers == 3 && servers == 3 && sync == 0);
  assert_true(worker == self->index && master == (worker == 0));
  mv_table_info info = MV_TABLE_INFO_INIT;
  expect_ok(mv_table_describe(self->table, &info));
  assert_int_equal(info.servers, 3);
}
static void every_member_knows_its_place(void** state) {
  (void)state;
  run_cluster(3, 0, check_place);
}

static void pause_ms(long ms) {
  struct timespec span = {ms / 1000, (ms % 1000) * 1000000};
  while (nanosleep(&span, &span) != 0) continue;
}

static void ask_how_it_stands(struct member* self) {
  char text[8192], few[40];
  uint64_t length = 0;
  expect_ok(mv_status_text(self->node, 0, NULL, 0, &length));
  assert_true(length > 100);
  expect_ok(mv_status_text(self->node, 0, text, sizeof text, &length));
  assert_true(length < sizeof text && strlen(text) == length);
  assert_non_null(strstr(text, "3 workers, 3 servers, async mode"));
  assert_non_null(strstr(text, "an array of 257 f32"));
  expect_ok(mv_status_text(self->node, MV_JSON, text, sizeof text, &length));
  assert_true(text[0] == '{' && text[length - 1] == '}');
  assert_non_null(strstr(text, "\"answered\":true"));
  expect_ok(mv_status_text(self->node, 0, few, sizeof few, &length)); /* truncated and terminated */
  assert_true(length >= sizeof few && strlen(few) == sizeof few - 1);
  for (int i = 0; i < 50; ++i) { /* the rest is not fetched again, though the seconds gain digits meanwhile */
    uint64_t again = 0;
    expect_ok(mv_status_text(self->node, MV_JSON, NULL, 0, &length));
    pause_ms(1);
    expect_ok(mv_status_text(self->node, MV_JSON, text, length + 1, &again));
    assert_int_equal(again, length);
  }
  expect_error(mv_status_text(self->node, 2, text, sizeof text, &length), MV_EINVAL, "2");
  expect_error(mv_status_text(self->node, 0, text, sizeof text, NULL), MV_EINVAL, "length");
  expect_error(mv_status_text(self->node, 0, NULL, 9, &length), MV_EINVAL, "text");
  expect_error(mv_status_text(self->table, 0, text, sizeof text, &length), MV_EHANDLE, "table");
  expect_error(mv_cluster_status_text("nodes=", 0, text, sizeof text, &length), MV_EINVAL, "nodes");
  expect_ok(mv_barrier(self->node, NULL));
}
static void every_member_reports_the_clusters_status(void** state) {
  (void)state;
  run_cluster(3, 0, ask_how_it_stands);
}

/* ------------------------------------------------------------------ async */

static void add_and_fence(struct member* self) {
  float delta[kElements], got[kElements];
  mv_call_options forget = MV_CALL_OPTIONS_INIT;
  forget.flags = MV_FORGET;
  for (int i = 0; i < kElements; ++i) delta[i] = (float)(self->index + 1);
  for (int round = 0; round < kRounds; ++round) {
    expect_ok(mv_table_add(self->table, delta, kElements, MV_F32, round % 2 == 0 ? &forget : NULL));
  }
  expect_ok(mv_barrier(self->node, NULL));
  expect_ok(mv_table_get(self->table, got, kElements, MV_F32, NULL));
  for (int i = 0; i < kElements; ++i) assert_true(got[i] == kRounds * (1 + 2 + 3));
  expect_ok(mv_barrier(self->node, NULL));
}
static void the_barrier_is_a_fence_after_everybodys_adds(void** state) {
  (void)state;
  run_cluster(3, 0, add_and_fence);
}

/* ------------------------------------------------------------------- sync */

static void add_and_get(struct member* self) {
  float delta[kElements];
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kElements; ++i) delta[i] = 0.1f * (float)(i + 1) / (float)(self->index + round + 1);
    expect_ok(mv_table_add(self->table, delta, kElements, MV_F32, NULL));
    expect_ok(mv_table_get(self->table, self->gets[round], kElements, MV_F32, NULL));
  }
}
static void workers_in_step_get_the_same_bits(void** state) {
  (void)state;
  run_cluster(3, 1, add_and_get);
  for (int i = 1; i < 3; ++i) assert_memory_equal(members[i].gets, members[0].gets, sizeof(members[0].gets));
  float all[kElements] = {0}; /* the same sum, in rank order */
  for (int round = 0; round < kRounds; ++round) {
    for (int worker = 0; worker < 3; ++worker) {
      for (int i = 0; i < kElements; ++i) all[i] += 0.1f * (float)(i + 1) / (float)(worker + round + 1);
    }
    assert_memory_equal(all, members[0].gets[round], sizeof(all));
  }
}

static void one_stops_early(struct member* self) {
  float delta[kElements] = {1};
  const int rounds = self->index == 1 ? 3 : 10;
  for (int round = 0; round < rounds; ++round) {
    expect_ok(mv_table_add(self->table, delta, kElements, MV_F32, NULL));
    expect_ok(mv_table_get(self->table, self->gets[round], kElements, MV_F32, NULL));
  }
}
static void a_finished_worker_delays_no_other(void** state) {
  (void)state;
  run_cluster(3, 1, one_stops_early);
  assert_true(members[0].gets[9][0] == 23 && members[2].gets[9][0] == 23);
}

/* Changes that only the other worker's departure releases. In one table, worker 0's first change may be applied, and its second waits
 * for worker 1's first. In the other table, worker 1's first change waits for worker 0's. */
static pthread_barrier_t all_have_added;
static mv_status left_with[2];
static void* leaves_with_held_changes(void* argument) {
  const int rank = *(const int*)argument;
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  mv_call_options forget = MV_CALL_OPTIONS_INIT;
  mv_node node = 0;
  mv_table tables[2];
  float delta[kElements] = {1};
  options.transport = "inproc";
  options.nodes = 2;
  options.rank = rank;
  options.master = "held-changes";
  options.sync = 1;
  options.gate_timeout_ms = 1000;
  forget.flags = MV_FORGET;
  expect_ok(mv_node_open(&options, &node));
  expect_ok(mv_table_create_text(node, "name=a size=257", NULL, 0, MV_F32, &tables[0]));
  expect_ok(mv_table_create_text(node, "name=b size=257", NULL, 0, MV_F32, &tables[1]));
  for (int i = 0; i < (rank == 0 ? 2 : 1); ++i) expect_ok(mv_table_add(tables[rank], delta, kElements, MV_F32, &forget));
  pthread_barrier_wait(&all_have_added);
  left_with[rank] = mv_shutdown(node);
  return NULL;
}
static void changes_that_wait_for_each_other_do_not_hold_up_the_end(void** state) {
  (void)state;
  int ranks[2] = {0, 1};
  pthread_t workers[2];
  pthread_barrier_init(&all_have_added, NULL, 2);
  for (int i = 0; i < 2; ++i) assert_int_equal(pthread_create(&workers[i], NULL, leaves_with_held_changes, &ranks[i]), 0);
  for (int i = 0; i < 2; ++i) pthread_join(workers[i], NULL);
  pthread_barrier_destroy(&all_have_added);
  /* The first worker that gives up releases the other's changes. */
  assert_true(left_with[0] == MV_ETIMEOUT || left_with[1] == MV_ETIMEOUT);
  for (int i = 0; i < 2; ++i) assert_true(left_with[i] == MV_ETIMEOUT || left_with[i] == MV_OK);
}

/* ---------------------------------------------------------------- signals */

static volatile sig_atomic_t signals_seen;
static void on_signal(int number) {
  (void)number;
  ++signals_seen;
}
static void catch_signals(void) {
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_handler = on_signal; /* no SA_RESTART, like the interpreters */
  sigaction(SIGUSR1, &action, NULL);
}

static int is_waiting; /* node 0 is about to wait: signals may come */
static int may_arrive; /* node 0 is done with signals: node 1 may arrive */

static int is_set(const int* flag) { return __atomic_load_n(flag, __ATOMIC_ACQUIRE); }
static void set(int* flag, int value) { __atomic_store_n(flag, value, __ATOMIC_RELEASE); }

/** Runs two nodes and sends signals to the first one's thread, from is_waiting to may_arrive. */
static void run_under_signals(void (*body)(struct member*)) {
  catch_signals();
  signals_seen = 0;
  set(&is_waiting, 0);
  set(&may_arrive, 0);
  start_cluster(2, 0, body);
  while (!is_set(&may_arrive)) {
    pause_ms(20);
    if (is_set(&is_waiting)) pthread_kill(threads[0], SIGUSR1);
  }
  end_cluster(2);
}

/** Node 0 waits in the barrier while signals come; node 1 arrives when it is told to. */
static void wait_under_signals(struct member* self) {
  if (self->index == 1) {
    while (!is_set(&may_arrive)) pause_ms(5);
    expect_ok(mv_barrier(self->node, NULL));
    return;
  }
  mv_request request = 0;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.request = &request;
  set(&is_waiting, 1);
  expect_error(mv_barrier(self->node, &options), MV_EINTR, "");
  assert_true(request != 0);
  expect_error(mv_request_wait(request, 0), MV_EINTR, "the request continues");
  set(&may_arrive, 1);
  mv_status status = MV_EINTR;
  while (status == MV_EINTR) status = mv_request_wait(request, 0);
  expect_ok(status);
}
static void a_signal_interrupts_the_wait_and_not_the_call(void** state) {
  (void)state;
  run_under_signals(wait_under_signals);
  assert_true(signals_seen >= 2);
}

/** Without a place for a handle, the interrupted call is withdrawn and may be repeated. */
static void retry_under_signals(struct member* self) {
  if (self->index == 1) {
    while (!is_set(&may_arrive)) pause_ms(5);
  } else {
    set(&is_waiting, 1);
    expect_error(mv_barrier(self->node, NULL), MV_EINTR, "");
    set(&may_arrive, 1);
  }
  mv_status status = MV_EINTR;
  while (status == MV_EINTR) status = mv_barrier(self->node, NULL);
  expect_ok(status);
}
static void an_interrupted_barrier_may_be_repeated(void** state) {
  (void)state;
  run_under_signals(retry_under_signals);
}

static void poll_under_signals(struct member* self) {
  if (self->index == 1) return;
  mv_request finished[1];
  uint64_t count = 0;
  set(&is_waiting, 1);
  expect_error(mv_poll(self->node, finished, 1, &count, MV_FOREVER), MV_EINTR, "");
  set(&may_arrive, 1);
}
static void a_signal_interrupts_poll(void** state) {
  (void)state;
  run_under_signals(poll_under_signals);
}

/* -------------------------------------------------------------- deadlines */

static void miss_the_barrier(struct member* self) {
  if (self->index == 0) {
    mv_call_options options = MV_CALL_OPTIONS_INIT;
    options.timeout_ms = 100;
    expect_error(mv_barrier(self->node, &options), MV_ETIMEOUT, "1");
    set(&may_arrive, 1);
  } else {
    while (!is_set(&may_arrive)) pause_ms(5);
  }
  expect_ok(mv_barrier(self->node, NULL)); /* the call that timed out was withdrawn */
}
static void a_barrier_that_times_out_names_the_missing_workers(void** state) {
  (void)state;
  set(&may_arrive, 0);
  run_cluster(2, 0, miss_the_barrier);
}

static void differing_specs(struct member* self) {
  mv_table table = 77;
  expect_error(
      mv_table_create_text(self->node, self->index == 0 ? "name=v size=4" : "name=v size=5", NULL, 0, MV_F32, &table),
      MV_EDISAGREE, "v");
  assert_int_equal(table, 77);
}
static void specs_that_differ_are_refused_on_all(void** state) {
  (void)state;
  run_cluster(2, 0, differing_specs);
}

/* --------------------------------------------------------------- requests */

static void release_a_get(struct member* self) {
  float delta[kElements] = {0};
  delta[0] = 1;
  while (self->index == 1 && !is_set(&may_arrive)) pause_ms(1); /* the other node's get waits for this add */
  expect_ok(mv_table_add(self->table, delta, kElements, MV_F32, NULL));
  if (self->index == 1) {
    expect_ok(mv_table_get(self->table, self->gets[0], kElements, MV_F32, NULL));
    return;
  }
  mv_request request = 0;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_ASYNC;
  options.request = &request;
  expect_ok(mv_table_get(self->table, self->gets[0], kElements, MV_F32, &options));
  expect_error(mv_request_release(request), MV_EPENDING, "buffers");
  set(&may_arrive, 1);
  mv_status status = MV_EPENDING;
  while (status == MV_EPENDING) status = mv_request_release(request);
  expect_ok(status);
  assert_true(self->gets[0][0] == 2);
  expect_error(mv_request_release(request), MV_EHANDLE, "already");
}
static void a_get_is_released_when_it_needs_its_buffer_no_more(void** state) {
  (void)state;
  set(&may_arrive, 0);
  run_cluster(2, 1, release_a_get);
}

static void release_an_add_that_fails(struct member* self) {
  mv_request request = 0;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  if (self->index == 1) {
    expect_ok(mv_table_destroy(self->table));
    set(&may_arrive, 1);
    expect_ok(mv_barrier(self->node, NULL));
    expect_ok(mv_barrier(self->node, NULL));
    return;
  }
  while (!is_set(&may_arrive)) pause_ms(1);
  options.flags = MV_ASYNC;
  options.request = &request;
  expect_ok(mv_table_add(self->table, self->gets[0], kElements, MV_F32, &options));
  expect_ok(mv_request_release(request));
  expect_error(mv_barrier(self->node, NULL), MV_ENOTFOUND, "destroyed");
  expect_ok(mv_table_add(self->table, self->gets[0], kElements, MV_F32, &options));
  while (mv_request_error(request) == MV_EPENDING) pause_ms(1); /* has completed before it is released */
  expect_ok(mv_request_release(request));
  expect_error(mv_barrier(self->node, NULL), MV_ENOTFOUND, "destroyed");
}
static void the_error_of_a_released_add_is_reported_later(void** state) {
  (void)state;
  set(&may_arrive, 0);
  first_role = MV_ROLE_WORKER;
  run_cluster(2, 0, release_an_add_that_fails);
  first_role = MV_ROLE_UNSET;
}

/* ------------------------------------------------------------------ news of members */

static void hear_of_the_one_that_leaves(struct member* self) {
  if (self->index == 2) return; /* it leaves at once */
  mv_membership_event event = MV_MEMBERSHIP_EVENT_INIT;
  expect_error(mv_membership_next(self->node, NULL, 0), MV_EINVAL, "event is NULL");
  event.size = 8;
  expect_error(mv_membership_next(self->node, &event, 0), MV_EINVAL, "size");
  event.size = sizeof event;
  expect_error(mv_membership_next(self->node, &event, -2), MV_EINVAL, "timeout");
  mv_status status = MV_EINTR;
  while (status == MV_EINTR) status = mv_membership_next(self->node, &event, 20000);
  expect_ok(status);
  assert_int_equal(event.kind, MV_MEMBER_LEFT);
  assert_int_equal(event.rank, 2);
  assert_int_equal(event.role, MV_ROLE_ALL);
  assert_int_equal(event.part, -1);
  assert_int_equal(event.dropped, 0);
  assert_true(strlen(event.reason) > 0);
  /* The other one waits for this one's end, so nothing else happens. */
  expect_error(mv_membership_next(self->node, &event, 0), MV_ETIMEOUT, "not changed");
  expect_error(mv_membership_next(self->node, &event, 20), MV_ETIMEOUT, "not changed");
  expect_ok(mv_barrier(self->node, NULL));
}
static void the_others_hear_of_a_worker_that_finishes(void** state) {
  (void)state;
  run_cluster(3, 0, hear_of_the_one_that_leaves);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_member_knows_its_place),
      cmocka_unit_test(every_member_reports_the_clusters_status),
      cmocka_unit_test(the_barrier_is_a_fence_after_everybodys_adds),
      cmocka_unit_test(workers_in_step_get_the_same_bits),
      cmocka_unit_test(a_finished_worker_delays_no_other),
      cmocka_unit_test(changes_that_wait_for_each_other_do_not_hold_up_the_end),
      cmocka_unit_test(a_signal_interrupts_the_wait_and_not_the_call),
      cmocka_unit_test(an_interrupted_barrier_may_be_repeated),
      cmocka_unit_test(a_signal_interrupts_poll),
      cmocka_unit_test(a_barrier_that_times_out_names_the_missing_workers),
      cmocka_unit_test(specs_that_differ_are_refused_on_all),
      cmocka_unit_test(a_get_is_released_when_it_needs_its_buffer_no_more),
      cmocka_unit_test(the_error_of_a_released_add_is_reported_later),
      cmocka_unit_test(the_others_hear_of_a_worker_that_finishes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
