/* Asynchronous calls: handles, options, polling, and the flush of the barrier. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>

#include "expect.h"

static mv_call_options async_into(mv_request* request) {
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_ASYNC;
  options.request = request;
  return options;
}
static int readable(int32_t fd) {
  struct pollfd entry = {fd, POLLIN, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

static void a_request_is_waited_for_once(void** state) {
  (void)state;
  const mv_table table = create_table("size=2");
  mv_request add = 0, get = 0;
  float delta[2] = {1, 2}, got[2] = {0, 0};
  mv_call_options options = async_into(&add);
  expect_ok(mv_table_add(table, delta, 2, MV_F32, &options));
  delta[0] = delta[1] = 100; /* an add has copied its data */
  assert_true(add > 0 && add < (INT64_C(1) << 53));
  options.request = &get;
  expect_ok(mv_table_get(table, got, 2, MV_F32, &options));
  assert_true(get != add);
  expect_ok(mv_request_wait(get, 0));
  assert_true(got[0] == 1 && got[1] == 2); /* its worker's earlier adds are in it */
  expect_ok(mv_request_wait(add, MV_FOREVER));
  expect_error(mv_request_wait(add, 0), MV_EHANDLE, "already");
  expect_error(mv_request_error(get), MV_EHANDLE, "already");
}

static void test_tells_without_waiting(void** state) {
  (void)state;
  const mv_table table = create_table("size=2");
  const float delta[2] = {1, 2};
  mv_request request = 0;
  mv_call_options options = async_into(&request);
  expect_ok(mv_table_add(table, delta, 2, MV_F32, &options));
  int32_t done = 0;
  while (done == 0) {
    const mv_status seen = mv_request_error(request);
    assert_true(seen == MV_OK || seen == MV_EPENDING);
    expect_ok(mv_request_test(request, &done));
  }
  assert_int_equal(done, 1);
  expect_error(mv_request_test(request, &done), MV_EHANDLE, "already");
  expect_error(mv_request_test(request, NULL), MV_EINVAL, "NULL");
}

static void cancel_releases_whatever_became_of_it(void** state) {
  (void)state;
  const mv_table table = create_table("size=2");
  float got[2];
  mv_request request = 0;
  mv_call_options options = async_into(&request);
  for (int round = 0; round < 50; ++round) {
    expect_ok(mv_table_get(table, got, 2, MV_F32, &options));
    expect_ok(mv_request_cancel(request));
    expect_error(mv_request_wait(request, 0), MV_EHANDLE, "already");
  }
}

static void a_forgotten_add_is_there_after_the_barrier(void** state) {
  (void)state;
  const mv_table table = create_table("size=1 dtype=f64");
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_FORGET;
  const double one = 1;
  double got = 0;
  for (int i = 0; i < 1000; ++i) expect_ok(mv_table_add(table, &one, 1, MV_F64, &options));
  expect_ok(mv_barrier(0, NULL));
  expect_ok(mv_table_peek(table, &got, 1, MV_F64, NULL));
  assert_true(got == 1000);
}

static void a_barrier_may_be_a_request(void** state) {
  (void)state;
  mv_request request = 0;
  mv_call_options options = async_into(&request);
  expect_ok(mv_barrier(0, &options));
  expect_ok(mv_request_wait(request, 0));
}

static void the_event_fd_is_readable_until_poll_has_told_all(void** state) {
  (void)state;
  enum { kRequests = 5 };
  const mv_table table = create_table("size=1");
  const float one = 1;
  mv_request requests[kRequests], finished[kRequests + 1];
  uint64_t count = 77;
  int32_t fd = -1;
  expect_ok(mv_event_fd(0, &fd));
  assert_true(fd >= 0);
  assert_false(readable(fd));
  expect_ok(mv_poll(0, finished, kRequests, &count, 0));
  assert_int_equal(count, 0);
  for (int i = 0; i < kRequests; ++i) {
    mv_call_options options = async_into(&requests[i]);
    expect_ok(mv_table_add(table, &one, 1, MV_F32, &options));
  }
  uint64_t heard = 0;
  while (heard < kRequests) {
    struct pollfd entry = {fd, POLLIN, 0};
    assert_int_equal(poll(&entry, 1, 10000), 1);
    assert_true(readable(fd)); /* still: a test does not consume it */
    expect_ok(mv_poll(0, finished + heard, heard == 0 ? 2 : kRequests - heard, &count, 0));
    heard += count;
  }
  expect_ok(mv_poll(0, finished, 0, &count, 0));
  assert_int_equal(count, 0);
  for (int i = 0; i < kRequests; ++i) {
    int found = 0;
    for (int k = 0; k < kRequests; ++k) found += finished[k] == requests[i];
    assert_int_equal(found, 1);
    expect_ok(mv_request_wait(requests[i], 0));
  }
  expect_ok(mv_poll(0, finished, kRequests, &count, 1));
  assert_int_equal(count, 0);
  assert_false(readable(fd));
}

static void poll_skips_what_was_waited_for(void** state) {
  (void)state;
  const mv_table table = create_table("size=1");
  const float one = 1;
  mv_request first = 0, second = 0, finished[2] = {0, 0};
  uint64_t count = 0;
  mv_call_options options = async_into(&first);
  expect_ok(mv_table_add(table, &one, 1, MV_F32, &options));
  options.request = &second;
  expect_ok(mv_table_add(table, &one, 1, MV_F32, &options));
  expect_ok(mv_request_wait(first, 0));
  expect_ok(mv_poll(0, finished, 2, &count, MV_FOREVER));
  assert_int_equal(count, 1);
  assert_int_equal(finished[0], second);
  expect_ok(mv_request_wait(second, 0));
}

static void poll_checks_its_arguments(void** state) {
  (void)state;
  uint64_t count = 0;
  mv_request finished;
  expect_error(mv_poll(0, &finished, 1, NULL, 0), MV_EINVAL, "count is NULL");
  expect_error(mv_poll(0, NULL, 1, &count, 0), MV_EINVAL, "finished is NULL");
  expect_error(mv_poll(0, &finished, 1, &count, -2), MV_EINVAL, "timeout_ms is -2");
  expect_ok(mv_poll(0, NULL, 0, &count, MV_FOREVER)); /* nothing to wait for */
}

static void call_options_are_checked(void** state) {
  (void)state;
  const mv_table table = create_table("size=1");
  float value = 1;
  mv_request request = 77;
  const mv_call_options good = MV_CALL_OPTIONS_INIT;
  mv_call_options options = good;
#define REFUSE(part)                                                               \
  expect_error(mv_table_add(table, &value, 1, MV_F32, &options), MV_EINVAL, part); \
  options = good
  options.size = 4;
  REFUSE("mv_call_options.size is 4");
  options.version = 7;
  REFUSE("version is 7");
  options.flags = 4;
  REFUSE("0x4");
  options.flags = MV_ASYNC | MV_FORGET;
  options.request = &request;
  REFUSE("exclude each other");
  options.flags = MV_ASYNC;
  REFUSE("needs mv_call_options.request");
  options.reserved = 1;
  REFUSE("reserved");
  options.label = 1;
  REFUSE("label is for operations of groups only");
  options.timeout_ms = -2;
  REFUSE("timeout_ms is -2");
#undef REFUSE
  options.flags = MV_FORGET;
  expect_error(mv_table_get(table, &value, 1, MV_F32, &options), MV_EINVAL, "MV_FORGET is for adds only");
  expect_error(mv_table_peek(table, &value, 1, MV_F32, &options), MV_EINVAL, "adds only");
  expect_error(mv_table_set(table, &value, 1, MV_F32, &options), MV_EINVAL, "adds only");
  expect_error(mv_barrier(0, &options), MV_EINVAL, "adds only");
  options = good;
  options.timeout_ms = INT64_MAX;
  expect_ok(mv_table_add(table, &value, 1, MV_F32, &options));
  expect_error(mv_request_wait(1, -3), MV_EINVAL, "timeout_ms is -3");
  expect_ok(mv_table_peek(table, &value, 1, MV_F32, NULL));
  assert_true(value == 1); /* the one valid add */
}

static void a_handle_is_zero_where_none_is_left(void** state) {
  (void)state;
  const mv_table table = create_table("size=1");
  const float value = 1;
  mv_request request = 77;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.request = &request;
  expect_ok(mv_table_add(table, &value, 1, MV_F32, &options));
  assert_int_equal(request, 0);
  request = 77;
  options.flags = MV_ASYNC;
  expect_error(mv_table_add(table, &value, 2, MV_F32, &options), MV_ESHAPE, "");
  assert_int_equal(request, 0);
}

static void requests_are_not_used_up(void** state) {
  (void)state;
  const mv_table table = create_table("size=1");
  const float one = 1;
  float got = 0;
  for (int i = 0; i < 20000; ++i) {
    mv_request request = 0;
    mv_call_options options = async_into(&request);
    expect_ok(mv_table_add(table, &one, 1, MV_F32, &options));
    expect_ok(mv_request_wait(request, 0));
  }
  expect_ok(mv_table_get(table, &got, 1, MV_F32, NULL));
  assert_true(got == 20000);
}

/* The slot of a handle: slots are reused, so their number is the maximum of simultaneous requests. */
static int64_t slot_of(mv_request request) { return request & 0xFFFFFF; }

static void a_released_request_goes_on(void** state) {
  (void)state;
  const mv_table table = create_table("size=1");
  const float one = 1;
  float got = 0;
  int64_t most = 0;
  int32_t fd = -1;
  for (int i = 0; i < 200000; ++i) {
    mv_request request = 0;
    mv_call_options options = async_into(&request);
    expect_ok(i % 10 == 9 ? mv_barrier(0, &options) : mv_table_add(table, &one, 1, MV_F32, &options));
    if (slot_of(request) > most) most = slot_of(request);
    expect_ok(mv_request_release(request));
    if (i % 1000 == 0) expect_error(mv_request_wait(request, 0), MV_EHANDLE, "");
  }
  assert_true(most < 100);
  expect_ok(mv_barrier(0, NULL));
  expect_ok(mv_table_get(table, &got, 1, MV_F32, NULL));
  assert_true(got == 180000);
  mv_request finished[8];
  uint64_t count = 0;
  expect_ok(mv_poll(0, finished, 8, &count, 0)); /* they are not reported */
  assert_int_equal(count, 0);
  expect_ok(mv_event_fd(0, &fd));
  assert_false(readable(fd));
  expect_error(mv_request_release(table), MV_EHANDLE, "table");
  expect_error(mv_request_release(0), MV_EHANDLE, "");
}

static void a_waited_for_request_is_no_news(void** state) {
  (void)state;
  const mv_table table = create_table("size=1");
  const float one = 1;
  mv_request request = 0;
  mv_call_options options = async_into(&request);
  int32_t fd = -1;
  expect_ok(mv_event_fd(0, &fd));
  expect_ok(mv_table_add(table, &one, 1, MV_F32, &options));
  expect_ok(mv_request_wait(request, 0));
  assert_false(readable(fd));
}

struct shared_wait {
  mv_request request;
  mv_status status;
};
static void* wait_for_it(void* argument) {
  struct shared_wait* shared = argument;
  shared->status = mv_request_wait(shared->request, 0);
  return NULL;
}

static void two_threads_may_wait_for_one_request(void** state) {
  (void)state;
  const mv_table table = create_table("size=1000");
  float* values = calloc(1000, sizeof(float));
  for (int round = 0; round < 200; ++round) {
    struct shared_wait waits[2];
    pthread_t thread;
    mv_call_options options = async_into(&waits[0].request);
    expect_ok(mv_table_get(table, values, 1000, MV_F32, &options));
    waits[1].request = waits[0].request;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &waits[1]), 0);
    wait_for_it(&waits[0]);
    pthread_join(thread, NULL);
    assert_true((waits[0].status == MV_OK) + (waits[1].status == MV_OK) == 1);
    assert_true((waits[0].status == MV_EHANDLE) + (waits[1].status == MV_EHANDLE) == 1);
  }
  free(values);
}

int main(void) {
const struct CMUnitTest tests[] = {
      TEST_ALONE(a_request_is_waited_for_once),
      TEST_ALONE(test_tells_without_waiting),
      TEST_ALONE(cancel_releases_whatever_became_of_it),
      TEST_ALONE(a_forgotten_add_is_there_after_the_barrier),
      TEST_ALONE(a_barrier_may_be_a_request),
      TEST_ALONE(the_event_fd_is_readable_until_poll_has_told_all),
      TEST_ALONE(poll_skips_what_was_waited_for),
      TEST_ALONE(poll_checks_its_arguments),
      TEST_ALONE(call_options_are_checked),
      TEST_ALONE(a_handle_is_zero_where_none_is_left),
      TEST_ALONE(requests_are_not_used_up),
      TEST_ALONE(a_released_request_goes_on),
      TEST_ALONE(a_waited_for_request_is_no_news),
      TEST_ALONE(two_threads_may_wait_for_one_request),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
