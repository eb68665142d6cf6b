/* Updater callbacks of key-value stores: on which thread they run and when, which calls wait for them, and which calls are allowed
 * inside one. */
#include <poll.h>
#include <time.h>

#include "stores.h"

/** The calls that an updater received, and its next result. */
struct heard {
  int calls;
  char key[32];
  pthread_t thread;
  mv_status outcome;
};

/** stored += 2 merged, the manual's example */
static mv_status twice(void* user, const char* key, mv_tensor merged, mv_tensor stored) {
  struct heard* heard = user;
  ++heard->calls;
  snprintf(heard->key, sizeof(heard->key), "%s", key);
  heard->thread = pthread_self();
  expect_ok(mv_tensor_axpy(2, merged, stored));
  return heard->outcome;
}

static const int64_t kKeys[] = {3, 5};

/** A store with keys 3 and 5 of ones, and this updater. */
static kv_store store_with(kv_updater updater, void* user) {
  kv_store kv = 0;
  const mv_tensor ones[] = {full(kShape, 2, MV_F32, 1), full(kShape, 2, MV_F32, 1)};
  const kv_keys keys = number_keys(kKeys, 2);
  const kv_values values = values_of(ones, 2);
  expect_ok(kv_create(0, "local", &kv));
  expect_ok(kv_init(kv, &keys, &values));
  expect_ok(kv_set_updater(kv, updater, user));
  return kv;
}

static mv_status push_with(kv_store kv, int64_t key, double value, const mv_call_options* options) {
  const kv_keys keys = number_keys(&key, 1);
  const mv_tensor pushed = full(kShape, 2, MV_F32, value);
  const kv_values values = values_of(&pushed, 1);
  const mv_status status = kv_push(kv, &keys, &values, options);
  if (status == MV_OK) expect_ok(mv_tensor_free(pushed));
  return status;
}
static mv_status push(kv_store kv, int64_t key, double value) { return push_with(kv, key, value, NULL); }
static mv_status push_and_forget(kv_store kv, int64_t key, double value) {
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.flags = MV_FORGET;
  return push_with(kv, key, value, &options);
}
static mv_status pull_into(kv_store kv, int64_t key, mv_tensor out, int64_t timeout_ms) {
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  options.timeout_ms = timeout_ms;
  const kv_keys keys = number_keys(&key, 1);
  const kv_values values = values_of(&out, 1);
  return kv_pull(kv, &keys, &values, &options);
}
static void expect_stored(kv_store kv, int64_t key, double value) {
  const mv_tensor out = full(kShape, 2, MV_F32, -1);
  expect_ok(pull_into(kv, key, out, 0));
  expect_all(out, value);
  expect_ok(mv_tensor_free(out));
}
static uint64_t poll_callbacks(int64_t timeout_ms) {
  uint64_t count = 99;
  expect_ok(mv_poll(0, NULL, 0, &count, timeout_ms));
  assert_int_equal(count, 0);
  return count;
}
static int is_readable(void) {
  int32_t fd = -1;
  expect_ok(mv_event_fd(0, &fd));
  struct pollfd waiting = {.fd = fd, .events = POLLIN};
  return poll(&waiting, 1, 0) == 1;
}

static void a_push_runs_it_on_the_spot(void** state) {
  (void)state;
  struct heard heard = {0};
  kv_store kv = store_with(twice, &heard);
  expect_stored(kv, 3, 1);
  expect_ok(push(kv, 3, 1));
  assert_int_equal(heard.calls, 1);
  assert_string_equal(heard.key, "3");
  expect_stored(kv, 3, 3);

  /* devices are summed first, all keys of a call are updated, and the pushed tensors are unchanged */
  mv_tensor devices[4];
  for (int i = 0; i < 4; ++i) devices[i] = full(kShape, 2, MV_F32, i);
  const kv_keys both = number_keys(kKeys, 2);
  const kv_values values = values_of(devices, 4);
  expect_ok(kv_pushpull(kv, &both, &values, NULL, NULL));
  assert_int_equal(heard.calls, 3);
  for (int i = 0; i < 4; ++i) expect_all(devices[i], i < 2 ? 3 + 2 * 1 : 1 + 2 * 5);

  expect_ok(kv_set_updater(kv, NULL, NULL)); /* and no longer */
  expect_ok(push(kv, 3, 8));
  expect_stored(kv, 3, 8);
  assert_int_equal(heard.calls, 3);
  expect_ok(kv_free(kv));
}

static void its_error_is_the_pushs(void** state) {
  (void)state;
  struct heard heard = {0};
  kv_store kv = store_with(twice, &heard);
  heard.outcome = MV_ENONFINITE;
  expect_error(push(kv, 3, 1), MV_ENONFINITE, "\"3\"");
  expect_stored(kv, 3, 1); /* it has written, but the value is unchanged */
  heard.outcome = 7;
  expect_error(push(kv, 3, 1), MV_EINVAL, "7");
  heard.outcome = MV_OK;
  expect_ok(push(kv, 3, 1));
  expect_stored(kv, 3, 3);
  expect_ok(kv_free(kv));
}

static void what_nobody_waits_for_is_run_by_mv_poll(void** state) {
  (void)state;
  struct heard heard = {0};
  kv_store kv = store_with(twice, &heard);
  assert_false(is_readable());
  expect_ok(push_and_forget(kv, 3, 1));
  expect_ok(push_and_forget(kv, 5, 2));
  assert_int_equal(heard.calls, 0);
  assert_true(is_readable());
  poll_callbacks(MV_FOREVER);
  assert_int_equal(heard.calls, 2);
  assert_false(is_readable());
  expect_stored(kv, 3, 3);
  expect_stored(kv, 5, 5);

  heard.outcome = MV_EINVAL;
  expect_ok(push_and_forget(kv, 5, 2));
  poll_callbacks(0);
  heard.outcome = MV_OK;
  expect_stored(kv, 3, 3);
  const mv_tensor out = full(kShape, 2, MV_F32, 0);
  expect_error(pull_into(kv, 5, out, 0), MV_EINVAL, "earlier"); /* reported once, by the next call on the key */
  expect_stored(kv, 5, 5);

  expect_ok(push_and_forget(kv, 3, 1)); /* a pull and a push run it too */
  expect_stored(kv, 3, 5);
  expect_ok(push_and_forget(kv, 3, 1));
  expect_ok(push(kv, 3, 1));
  expect_stored(kv, 3, 9);
  expect_ok(push_and_forget(kv, 3, 1));
  expect_ok(kv_barrier(kv, NULL));
  assert_false(is_readable());
  expect_ok(push_and_forget(kv, 3, 1)); /* and so does the end of the store */
  const int before = heard.calls;
  expect_ok(kv_free(kv));
  assert_int_equal(heard.calls, before + 1);
  assert_false(is_readable());
}

/* ------------------------------------------------------------------ threads */

struct other {
  kv_store kv;
  int pushes;
  int done; /* no lock: read after pthread_join() */
};

static void* push_and_pull(void* argument) {
  struct other* self = argument;
  for (int i = 0; i < self->pushes; ++i) expect_ok(push(self->kv, 3, 1));
  const mv_tensor out = full(kShape, 2, MV_F32, 0);
  expect_ok(pull_into(self->kv, 3, out, 0)); /* waits for all of them */
  mv_tensor least = 0;
  double value = 0;
  int64_t integer = 0;
  expect_ok(mv_tensor_reduce(MV_LEAST, out, MV_ALL_AXES, &least));
  expect_ok(mv_tensor_get(least, NULL, 0, &value, &integer));
  assert_true(value >= 1 + 2 * self->pushes);
  self->done = 1;
  expect_ok(push(self->kv, 5, 1)); /* so that the poll below sees the end */
  return NULL;
}

static void other_threads_wait_for_its_own(void** state) {
  (void)state;
  enum { kThreads = 3, kPushes = 20 };
  struct heard heard = {0};
  kv_store kv = store_with(twice, &heard);
  struct other others[kThreads];
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) {
    others[i] = (struct other){kv, kPushes, 0};
    assert_int_equal(pthread_create(&threads[i], NULL, push_and_pull, &others[i]), 0);
  }
  while (heard.calls < kThreads * (kPushes + 1)) {
    poll_callbacks(60000);
    assert_true(pthread_equal(heard.thread, pthread_self()));
  }
  for (int i = 0; i < kThreads; ++i) {
    pthread_join(threads[i], NULL);
    assert_true(others[i].done);
  }
  expect_stored(kv, 3, 1 + 2 * kThreads * kPushes);
  expect_stored(kv, 5, 1 + 2 * kThreads);
  expect_ok(kv_free(kv));
}

static void* pull_in_vain(void* argument) {
  const kv_store kv = *(kv_store*)argument;
  expect_ok(push(kv, 3, 1));
  const mv_tensor out = full(kShape, 2, MV_F32, 0);
  expect_error(pull_into(kv, 3, out, 20), MV_ETIMEOUT, "mv_poll");
  expect_stored(kv, 5, 1); /* no push to that key */
  expect_error(kv_set_updater(kv, twice, NULL), MV_EPENDING, "thread");
  expect_error(kv_set_updater(kv, NULL, NULL), MV_EPENDING, "thread");
  expect_error(kv_set_optimizer(kv, "sgd"), MV_EPENDING, "thread");
  return NULL;
}

static void a_pull_has_its_deadline(void** state) {
  (void)state;
  struct heard heard = {0};
  kv_store kv = store_with(twice, &heard);
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, pull_in_vain, &kv), 0);
  pthread_join(thread, NULL);
  assert_int_equal(heard.calls, 0);
  expect_stored(kv, 3, 3); /* this thread only has to enter the library */
  expect_ok(kv_free(kv));
}

struct adopted {
  kv_store kv;
  struct heard heard;
};
static void* set_and_end(void* argument) {
  struct adopted* self = argument;
  self->kv = store_with(twice, &self->heard);
  expect_ok(push_and_forget(self->kv, 3, 1));
  return NULL;
}

static void a_thread_that_has_ended_is_told_of(void** state) {
  (void)state;
  struct adopted adopted = {0};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, set_and_end, &adopted), 0);
  pthread_join(thread, NULL);
  const mv_tensor out = full(kShape, 2, MV_F32, 0);
  expect_error(pull_into(adopted.kv, 3, out, 0), MV_ESTATE, "ended");
  expect_error(push(adopted.kv, 5, 1), MV_ESTATE, "ended");
  poll_callbacks(0); /* not for this thread */
  assert_int_equal(adopted.heard.calls, 0);
  expect_ok(kv_set_updater(adopted.kv, twice, &adopted.heard));
  expect_stored(adopted.kv, 3, 3);
  expect_ok(kv_free(adopted.kv));
}

/* ------------------------------------------------------------------ calls inside an updater */

static mv_status call_back(void* user, const char* key, mv_tensor merged, mv_tensor stored) {
  const kv_store kv = *(kv_store*)user;
  uint64_t count = 0;
  (void)merged;
  if (strcmp(key, "5") == 0) return mv_tensor_fill(stored, 50);
  const mv_tensor out = full(kShape, 2, MV_F32, 0);
  expect_error(pull_into(kv, 3, out, 0), MV_EREENTRANT, "in progress");
  expect_stored(kv, 5, 1);
  expect_error(push(kv, 5, 1), MV_EREENTRANT, "in progress");
  expect_ok(push_and_forget(kv, 5, 1));
  expect_error(pull_into(kv, 5, out, 0), MV_EREENTRANT, "in progress");
  expect_error(mv_poll(0, NULL, 0, &count, 0), MV_EREENTRANT, "callback");
  expect_error(kv_barrier(kv, NULL), MV_EREENTRANT, "in progress");
  expect_error(kv_set_updater(kv, NULL, NULL), MV_EREENTRANT, "in progress");
  expect_error(kv_set_optimizer(kv, "sgd"), MV_EREENTRANT, "in progress");
  expect_error(kv_free(kv), MV_EREENTRANT, "in progress");
  return mv_tensor_fill(stored, 30);
}

static void what_would_wait_for_itself_is_refused(void** state) {
  (void)state;
  kv_store kv = 0;
  kv = store_with(call_back, &kv);
  expect_ok(push(kv, 3, 1));
  expect_stored(kv, 3, 30);
  expect_stored(kv, 5, 50);
  expect_ok(kv_free(kv));
}

static mv_tensor kept[2];
static mv_status keep(void* user, const char* key, mv_tensor merged, mv_tensor stored) {
  (void)user;
  (void)key;
  kept[0] = merged;
  kept[1] = stored;
  return MV_OK;
}

static void its_tensors_are_lent(void** state) {
  (void)state;
  kv_store kv = store_with(keep, NULL);
  expect_ok(push(kv, 3, 1));
  expect_error(mv_tensor_fill(kept[0], 1), MV_EHANDLE, "closed");
  expect_error(mv_tensor_fill(kept[1], 1), MV_EHANDLE, "closed");
  expect_ok(kv_free(kv));
}

/* ------------------------------------------------------------------ KV_UPDATER_MANUAL */

/** Runs an update like a language's binding. */
static int run_manually(kv_store kv, mv_status outcome) {
  for (int calls = 0;; ++calls) {
    mv_tensor merged = 0, stored = 0, again = 0;
    char key[16];
    uint64_t length = 0;
    expect_ok(kv_next_update(kv, &merged, &stored, key, sizeof(key), &length));
    if (stored == 0) return calls;
    assert_int_equal(length, 1);
    expect_ok(kv_next_update(kv, &merged, &again, NULL, 0, &length)); /* for example, to learn the length */
    assert_true(again == stored);
    expect_ok(mv_tensor_axpy(2, merged, stored));
    expect_ok(kv_update_done(kv, outcome));
    expect_error(mv_tensor_fill(stored, 1), MV_EHANDLE, "closed");
  }
}

static void* push_by_another(void* argument) {
  expect_ok(push(*(kv_store*)argument, 5, 1));
  return NULL;
}

static void a_language_runs_them_itself(void** state) {
  (void)state;
  kv_store kv = store_with(KV_UPDATER_MANUAL, NULL);
  expect_ok(push(kv, 3, 1));
  const mv_tensor out = full(kShape, 2, MV_F32, 0);
  expect_error(pull_into(kv, 3, out, 0), MV_EPENDING, "kv_next_update");
  assert_true(is_readable());
  poll_callbacks(MV_FOREVER); /* returns at once: updates wait */
  assert_int_equal(run_manually(kv, MV_OK), 1);
  assert_false(is_readable());
  expect_stored(kv, 3, 3);
  expect_ok(push(kv, 3, 1));
  assert_int_equal(run_manually(kv, MV_EINVAL), 1); /* the thread that runs it knows the outcome */
  expect_stored(kv, 3, 3);

  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, push_by_another, &kv), 0);
  pthread_join(thread, NULL);
  assert_int_equal(run_manually(kv, MV_EINVAL), 1);
  expect_error(pull_into(kv, 5, out, 0), MV_EINVAL, "earlier"); /* the pusher learns of it, too */
  expect_stored(kv, 5, 1);

  const int64_t key = 3;
  const kv_keys keys = number_keys(&key, 1);
  const kv_values values = values_of(&out, 1);
  expect_error(kv_pushpull(kv, &keys, &values, NULL, NULL), MV_ESTATE, "manually");
  expect_error(kv_update_done(kv, MV_OK), MV_ESTATE, "kv_next_update");
  expect_ok(kv_set_updater(kv, NULL, NULL));
  mv_tensor merged = 0, stored = 0;
  uint64_t length = 0;
  expect_error(kv_next_update(kv, &merged, &stored, NULL, 0, &length), MV_ESTATE, "KV_UPDATER_MANUAL");
  expect_ok(kv_free(kv));
}

/* ------------------------------------------------------------------ others */

static void the_last_one_set_counts(void** state) {
  (void)state;
  struct heard heard = {0};
  kv_store kv = store_with(twice, &heard);
  expect_ok(kv_set_optimizer(kv, "sgd rate=1"));
  expect_ok(push(kv, 3, 1));
  expect_stored(kv, 3, 0);
  expect_ok(kv_set_updater(kv, twice, &heard));
  expect_ok(push(kv, 3, 1));
  expect_stored(kv, 3, 2);
  expect_ok(kv_set_updater(kv, NULL, NULL));
  expect_ok(push(kv, 3, 1));
  expect_stored(kv, 3, 1);
  assert_int_equal(heard.calls, 1);
  expect_ok(kv_free(kv));
}

/** `merged` holds the pushed rows, each once; `stored` is the key's value. */
static mv_status by_rows(void* user, const char* key, mv_tensor merged, mv_tensor stored) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  (void)key;
  expect_ok(mv_tensor_describe(merged, &info));
  *(uint64_t*)user = info.row_sparse ? info.rows_held : 99;
  return mv_tensor_axpy(1, merged, stored);
}

static void rows_are_given_as_rows(void** state) {
  (void)state;
  uint64_t held = 0;
  kv_store kv = store_with(by_rows, &held);
  const int64_t first[] = {1}, both[] = {1, 0}, one_row[] = {1, 3}, two_rows[] = {2, 3};
  const mv_tensor ones[] = {full(one_row, 2, MV_F32, 1), full(two_rows, 2, MV_F32, 1)};
  mv_tensor devices[2];
  expect_ok(mv_tensor_sparse(first, 1, ones[0], 2, &devices[0]));
  expect_ok(mv_tensor_sparse(both, 2, ones[1], 2, &devices[1]));
  const kv_keys keys = number_keys(kKeys, 1);
  const kv_values one = values_of(devices, 1), two = values_of(devices, 2);
  expect_ok(kv_push(kv, &keys, &one, NULL));
  assert_int_equal(held, 1);
  expect_ok(kv_push(kv, &keys, &two, NULL));
  assert_int_equal(held, 2);
  const mv_tensor out = full(kShape, 2, MV_F32, 0);
  mv_tensor row = 0;
  expect_ok(pull_into(kv, 3, out, 0));
  for (int64_t i = 0; i < 2; ++i) {
    expect_ok(mv_tensor_row(out, i, &row));
    expect_all(row, i == 0 ? 2 : 4);
  }
  expect_ok(kv_free(kv));
}

/** For a row-sparse key, `stored` holds the rows that are not zero. */
static mv_status by_stored_rows(void* user, const char* key, mv_tensor merged, mv_tensor stored) {
  mv_tensor_info info = MV_TENSOR_INFO_INIT;
  (void)key;
  expect_ok(mv_tensor_describe(stored, &info));
  assert_true(info.row_sparse);
  *(uint64_t*)user = info.rows_held;
  return mv_tensor_axpy(2, merged, stored);
}

static void a_row_sparse_key_is_given_as_rows(void** state) {
  (void)state;
  uint64_t held = 99;
  kv_store kv = 0;
  const int64_t shape[] = {4, 3}, id[] = {2}, one_row[] = {1, 3}, other[] = {0};
  mv_tensor zeros = full(shape, 2, MV_F32, 0), row = full(one_row, 2, MV_F32, 1), initial = 0, pushed[2], left = 0, part = 0;
  expect_ok(mv_tensor_to_sparse(zeros, &initial));
  expect_ok(mv_tensor_sparse(id, 1, row, 4, &pushed[0]));
  expect_ok(mv_tensor_sparse(other, 1, row, 4, &pushed[1]));
  const kv_keys keys = number_keys(kKeys, 1);
  const kv_values first = values_of(&initial, 1), one = values_of(pushed, 1), next = values_of(pushed + 1, 1);
  expect_ok(kv_create(0, "local", &kv));
  expect_ok(kv_init(kv, &keys, &first));
  expect_ok(kv_set_updater(kv, by_stored_rows, &held));
  expect_ok(kv_push(kv, &keys, &one, NULL));
  assert_int_equal(held, 0);
  expect_ok(kv_push(kv, &keys, &next, NULL));
  assert_int_equal(held, 1);

  /* KV_UPDATER_MANUAL, and through a row-sparse result: stored = stored - merged * 0.5 */
  expect_ok(kv_set_updater(kv, KV_UPDATER_MANUAL, NULL));
  expect_ok(kv_push(kv, &keys, &next, NULL));
  mv_tensor merged = 0, stored = 0, half = 0, result = 0;
  char key[8];
  uint64_t length = 0;
  expect_ok(kv_next_update(kv, &merged, &stored, key, sizeof(key), &length));
  expect_ok(mv_tensor_scalar(MV_MUL, merged, 0.5, 0, 0, &half));
  expect_ok(mv_tensor_binary(MV_SUB, stored, half, stored, &result));
  assert_int_equal(result, stored);
  expect_error(mv_tensor_copy(zeros, stored, &result), MV_EINVAL, "mv_tensor_to_sparse");
  expect_ok(kv_update_done(kv, MV_OK));

  expect_ok(pull_into(kv, 3, zeros, 0));
  const double wanted[] = {1.5, 0, 2, 0};
  for (int64_t i = 0; i < 4; ++i) {
    expect_ok(mv_tensor_row(zeros, i, &part));
    expect_all(part, wanted[i]);
  }
  expect_ok(mv_tensor_to_sparse(zeros, &left));
  expect_ok(kv_optimizer_step("mx.sgd learning_rate=1", 1, 0, left, pushed[1], NULL)); /* updates it, too */
  expect_ok(mv_tensor_to_dense(left, &part));
  expect_ok(mv_tensor_row(part, 0, &row));
  expect_all(row, 0.5);
  expect_ok(kv_free(kv));
}

static void servers_run_no_callbacks(void** state) {
  (void)state;
  kv_store kv = 0;
  expect_ok(kv_create(0, "dist_sync", &kv));
  expect_error(kv_set_updater(kv, twice, NULL), MV_ESTATE, "kv_set_optimizer");
  expect_error(kv_set_updater(kv, KV_UPDATER_MANUAL, NULL), MV_ESTATE, "kv_set_optimizer");
  expect_ok(kv_free(kv));
  expect_error(kv_set_updater(kv, twice, NULL), MV_EHANDLE, "closed");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST_ALONE(a_push_runs_it_on_the_spot),
      TEST_ALONE(its_error_is_the_pushs),
      TEST_ALONE(what_nobody_waits_for_is_run_by_mv_poll),
      TEST_ALONE(other_threads_wait_for_its_own),
      TEST_ALONE(a_pull_has_its_deadline),
      TEST_ALONE(a_thread_that_has_ended_is_told_of),
      TEST_ALONE(what_would_wait_for_itself_is_refused),
      TEST_ALONE(its_tensors_are_lent),
      TEST_ALONE(a_language_runs_them_itself),
      TEST_ALONE(the_last_one_set_counts),
      TEST_ALONE(rows_are_given_as_rows),
      TEST_ALONE(a_row_sparse_key_is_given_as_rows),
      TEST_ALONE(servers_run_no_callbacks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
