/* Eight threads on one node: no add is lost or doubled, in any form; handles survive any race. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "expect.h"

enum { kThreads = 8, kRounds = 500, kElements = 64 };

static mv_table table;

static int start(void** state) {
  (void)state;
  expect_ok(mv_init(NULL));
  expect_ok(mv_table_create_text(0, "name=w kind=matrix rows=8 cols=8 dtype=f64", NULL, 0, MV_F64, &table));
  return 0;
}
static int end(void** state) {
  (void)state;
  expect_ok(mv_shutdown(0));
  return 0;
}

static void run_threads(void* (*body)(void*)) {
  pthread_t threads[kThreads];
  for (intptr_t i = 0; i < kThreads; ++i) assert_int_equal(pthread_create(&threads[i], NULL, body, (void*)i), 0);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
}

static void expect_everywhere(double value) {
  double got[kElements];
  expect_ok(mv_barrier(0, NULL));
  expect_ok(mv_table_get(table, got, kElements, MV_F64, NULL));
  for (int i = 0; i < kElements; ++i) assert_true(got[i] == value);
}

/** Each round adds 1 to every element, in one of the possible forms. */
static void* add_in_every_way(void* argument) {
  const intptr_t self = (intptr_t)argument;
  double one[kElements], got[kElements];
  int64_t rows[8];
  for (int i = 0; i < kElements; ++i) one[i] = 1;
  for (int i = 0; i < 8; ++i) rows[i] = (i + self) % 8;
  for (int round = 0; round < kRounds; ++round) {
    mv_request request = 0;
    mv_call_options options = MV_CALL_OPTIONS_INIT;
    switch ((round + self) % 4) {
      case 0:
        expect_ok(mv_table_add(table, one, kElements, MV_F64, NULL));
        break;
      case 1:
        expect_ok(mv_table_add_rows(table, rows, 8, one, kElements, MV_F64, NULL));
        break;
      case 2:
        options.flags = MV_FORGET;
        expect_ok(mv_table_add(table, one, kElements, MV_F64, &options));
        break;
      default:
        options.flags = MV_ASYNC;
        options.request = &request;
        expect_ok(mv_table_add(table, one, kElements, MV_F64, &options));
        expect_ok(mv_request_wait(request, 0));
    }
    expect_ok(mv_table_get(table, got, kElements, MV_F64, NULL));
    for (int i = 0; i < kElements; ++i) assert_true(got[i] >= round + 1); /* includes the thread's own adds */
  }
  return NULL;
}
static void adds_of_many_threads_are_all_there(void** state) {
  (void)state;
  run_threads(add_in_every_way);
  expect_everywhere((double)kThreads * kRounds);
}

static void* come_and_go(void* argument) {
  (void)argument;
  for (int round = 0; round < kRounds; ++round) {
    mv_table mine = 0;
    double got[kElements];
    uint64_t length = 0;
    expect_ok(mv_table_open(0, "w", &mine));
    expect_ok(mv_table_peek(mine, got, kElements, MV_F64, NULL));
    expect_ok(mv_table_list(0, NULL, 0, &length));
    expect_ok(mv_table_close(mine));
    expect_error(mv_table_peek(mine, got, kElements, MV_F64, NULL), MV_EHANDLE, "closed table handle");
  }
  return NULL;
}
static void handles_come_and_go_in_all_threads(void** state) {
  (void)state;
  run_threads(come_and_go);
}

static mv_table shared_handle;
static void* use_until_closed(void* argument) {
  double got[kElements];
  if ((intptr_t)argument == 0) {
    for (int i = 0; i < 200; ++i) expect_ok(mv_table_peek(shared_handle, got, kElements, MV_F64, NULL));
    expect_ok(mv_table_close(shared_handle));
    return NULL;
  }
  mv_status status = MV_OK;
  while (status == MV_OK) status = mv_table_peek(shared_handle, got, kElements, MV_F64, NULL);
  assert_int_equal(status, MV_EHANDLE);
  return NULL;
}
static void a_handle_may_be_closed_under_its_users(void** state) {
  (void)state;
  for (int round = 0; round < 20; ++round) {
    expect_ok(mv_table_open(0, "w", &shared_handle));
    run_threads(use_until_closed);
  }
}

static void* add_and_poll(void* argument) {
  (void)argument;
  const double zero[kElements] = {0};
  for (int round = 0; round < kRounds; ++round) {
    mv_request request = 0, finished[4];
    uint64_t count = 0;
    mv_call_options options = MV_CALL_OPTIONS_INIT;
    options.flags = MV_ASYNC;
    options.request = &request;
    expect_ok(mv_table_add(table, zero, kElements, MV_F64, &options));
    /* The thread that receives the event waits for it; if no other thread does, this one does. */
    expect_ok(mv_poll(0, finished, 4, &count, 0));
    for (uint64_t i = 0; i < count; ++i) {
      const mv_status status = mv_request_wait(finished[i], 0);
      assert_true(status == MV_OK || status == MV_EHANDLE);
    }
    const mv_status status = mv_request_wait(request, 0);
    assert_true(status == MV_OK || status == MV_EHANDLE);
  }
  return NULL;
}
static void threads_may_poll_for_each_other(void** state) {
  (void)state;
  run_threads(add_and_poll);
}

static void* fail_in_its_own_way(void* argument) {
  const int64_t wrong = 1000 + (int64_t)(intptr_t)argument;
  char expected[32];
  double value = 0;
  snprintf(expected, sizeof(expected), "%d is not a handle", (int)wrong);
  for (int round = 0; round < kRounds; ++round) {
    expect_error(mv_table_get(wrong, &value, 1, MV_F64, NULL), MV_EHANDLE, expected);
  }
  return NULL;
}
static void each_thread_has_its_own_last_error(void** state) {
  (void)state;
  run_threads(fail_in_its_own_way);
}

static mv_node ending;
static mv_table ending_table;

/** Makes calls until the node is gone: every call works or returns that error, and none hangs. */
static void* call_until_the_end(void* argument) {
  float value = 0;
  mv_status status = MV_OK;
  while (status == MV_OK) {
    mv_request request = 0, finished[2];
    uint64_t count = 0;
    mv_call_options options = MV_CALL_OPTIONS_INIT;
    options.flags = MV_ASYNC;
    options.request = &request;
    switch ((intptr_t)argument % 4) {
      case 0:
        status = mv_table_peek(ending_table, &value, 1, MV_F32, NULL);
        break;
      case 1:
        status = mv_poll(ending, finished, 2, &count, MV_FOREVER);
        break;
      case 2:
        status = mv_table_get(ending_table, &value, 1, MV_F32, &options);
        if (status == MV_OK) status = mv_request_wait(request, 0);
        break;
      default:
        status = mv_barrier(ending, NULL);
    }
  }
  if (status != MV_EHANDLE && status != MV_ESTATE && status != MV_ECANCELED) expect_ok(status);
  return NULL;
}
static void a_node_may_end_under_its_users(void** state) {
  (void)state;
  for (int round = 0; round < 20; ++round) {
    pthread_t users[kThreads];
    expect_ok(mv_node_open(NULL, &ending));
    expect_ok(mv_table_create_text(ending, "size=1", NULL, 0, MV_F32, &ending_table));
    for (intptr_t i = 0; i < kThreads; ++i) {
      assert_int_equal(pthread_create(&users[i], NULL, call_until_the_end, (void*)i), 0);
    }
    struct timespec while_they_call = {0, 2000000};
    nanosleep(&while_they_call, NULL);
    expect_ok(mv_shutdown(ending));
    for (int i = 0; i < kThreads; ++i) pthread_join(users[i], NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(adds_of_many_threads_are_all_there),     cmocka_unit_test(handles_come_and_go_in_all_threads),
      cmocka_unit_test(a_handle_may_be_closed_under_its_users), cmocka_unit_test(threads_may_poll_for_each_other),
      cmocka_unit_test(each_thread_has_its_own_last_error),     cmocka_unit_test(a_node_may_end_under_its_users),
  };
  return cmocka_run_group_tests(tests, start, end);
}
