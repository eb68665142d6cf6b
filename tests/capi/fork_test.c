/* A forked child has no part in its parent's cluster, reports so, and may start its own. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

static mv_table table;
static mv_request request;

/** Ends the child with the number of the failed line, so that the parent's assertion shows it. */
#define CHILD_CHECK(holds) \
  if (!(holds)) _exit(__LINE__ & 0x7F)

/** ThreadSanitizer ends a forked child that starts a thread, as a node does. */
static void skip_under_thread_sanitizer(void) {
#ifdef __SANITIZE_THREAD__
  skip();
#endif
}

static void run_child(void (*body)(void)) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    alarm(30);
    body();
    _exit(0);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static int start(void** state) {
  (void)state;
  const float one = 1;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  expect_ok(mv_init(NULL));
  expect_ok(mv_table_create_text(0, "size=1 name=w", &one, 1, MV_F32, &table));
  options.flags = MV_ASYNC;
  options.request = &request;
  expect_ok(mv_table_add(table, &one, 1, MV_F32, &options));
  return 0;
}
static int end(void** state) {
  (void)state;
  expect_ok(mv_request_wait(request, 0));
  expect_ok(mv_shutdown(0));
  return 0;
}

static void every_call_is_refused(void) {
  int64_t rank = 0;
  uint64_t count = 0;
  float value = 0;
  int32_t done = 0;
  CHILD_CHECK(mv_rank(0, &rank) == MV_EFORK);
  CHILD_CHECK(strstr(mv_last_error(), "mv_rank: this process was forked") != NULL);
  CHILD_CHECK(mv_table_get(table, &value, 1, MV_F32, NULL) == MV_EFORK);
  CHILD_CHECK(mv_request_wait(request, 0) == MV_EFORK);
  CHILD_CHECK(mv_request_test(request, &done) == MV_EFORK);
  CHILD_CHECK(mv_poll(0, NULL, 0, &count, 0) == MV_EFORK);
  CHILD_CHECK(mv_barrier(0, NULL) == MV_EFORK);
  CHILD_CHECK(mv_table_list(0, NULL, 0, &count) == MV_EFORK);
  CHILD_CHECK(mv_doctor_text(0, 0, NULL, 0, &count) == MV_EFORK);
  CHILD_CHECK(mv_metrics_text(0, NULL, 0, &count) == MV_EFORK);
  CHILD_CHECK(mv_trace_text(0, NULL, 0, &count) == MV_EFORK);
  CHILD_CHECK(mv_shutdown(0) == MV_EFORK);
  CHILD_CHECK(mv_log_level_set(MV_LOG_WARN) == MV_OK);
}
static void a_child_can_do_nothing_before_its_own_init(void** state) {
  (void)state;
  run_child(every_call_is_refused);
}

static void its_own_cluster(void) {
  mv_table own = 0;
  float value = 5;
  CHILD_CHECK(mv_init(NULL) == MV_OK);
  CHILD_CHECK(mv_table_get(table, &value, 1, MV_F32, NULL) == MV_EHANDLE); /* the parent's table */
  CHILD_CHECK(mv_request_wait(request, 0) == MV_EHANDLE);
  CHILD_CHECK(mv_table_create_text(0, "size=1 name=w", NULL, 0, MV_F32, &own) == MV_OK);
  CHILD_CHECK(own != table);
  CHILD_CHECK(mv_table_get(own, &value, 1, MV_F32, NULL) == MV_OK && value == 0);
  CHILD_CHECK(mv_barrier(0, NULL) == MV_OK);
  CHILD_CHECK(mv_shutdown(0) == MV_OK);
  CHILD_CHECK(mv_shutdown(0) == MV_ESTATE);
}
static void a_child_may_begin_a_cluster_of_its_own(void** state) {
  (void)state;
  skip_under_thread_sanitizer();
  run_child(its_own_cluster);
}

static void a_store_of_its_own(void) {
  kv_store store = 0;
  char type[16] = "";
  uint64_t length = 0;
  CHILD_CHECK(kv_create(0, "dist_sync", &store) == MV_EFORK);
  CHILD_CHECK(strstr(mv_last_error(), "open it anew, after mv_init() in this process") != NULL);
  CHILD_CHECK(kv_create(0, "local", NULL) == MV_EINVAL);
  CHILD_CHECK(kv_create(0, "local", &store) == MV_OK);
  CHILD_CHECK(kv_type(store, type, sizeof type, &length) == MV_OK && strcmp(type, "local") == 0);
  CHILD_CHECK(kv_free(store) == MV_OK);
}
static void a_local_store_needs_no_init_in_a_child(void** state) {
  (void)state;
  skip_under_thread_sanitizer();
  run_child(a_store_of_its_own);
}

static void a_grandchild(void) {
  CHILD_CHECK(mv_init(NULL) == MV_OK);
  int status = -1;
  int64_t rank = 0;
  const pid_t grandchild = fork();
  if (grandchild == 0) {
    CHILD_CHECK(mv_rank(0, &rank) == MV_EFORK);
    its_own_cluster();
    _exit(0);
  }
  CHILD_CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
  CHILD_CHECK(mv_rank(0, &rank) == MV_OK);
  CHILD_CHECK(mv_shutdown(0) == MV_OK);
}
static void so_may_a_grandchild(void** state) {
  (void)state;
  skip_under_thread_sanitizer();
  run_child(a_grandchild);
}

static void* makes_tensors(void* stop) {
  const int64_t shape[] = {1024};
  mv_tensor tensor = 0;
  while (!__atomic_load_n((int*)stop, __ATOMIC_RELAXED)) {
    if (mv_tensor_create(MV_F32, shape, 1, &tensor) != MV_OK || mv_tensor_free(tensor) != MV_OK) return stop;
  }
  return NULL;
}
static void makes_a_tensor(void) {
  const int64_t shape[] = {1024};
  mv_tensor tensor = 0;
  CHILD_CHECK(mv_init(NULL) == MV_OK);
  CHILD_CHECK(mv_tensor_create(MV_F32, shape, 1, &tensor) == MV_OK);
  CHILD_CHECK(mv_tensor_free(tensor) == MV_OK);
}
/** Another thread may hold a process-wide lock at the fork. */
static void other_threads_may_hold_locks_at_the_fork(void** state) {
  (void)state;
#ifdef __SANITIZE_ADDRESS__
  skip(); /* or a lock of malloc() */
#endif
  skip_under_thread_sanitizer();
  int stop = 0;
  void* failed = NULL;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, makes_tensors, &stop), 0);
  for (int i = 0; i < 200; ++i) run_child(makes_a_tensor);
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  assert_int_equal(pthread_join(thread, &failed), 0);
  assert_null(failed);
}

static mv_status open_inproc(const char* cluster, mv_node* node) {
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.transport = "inproc";
  options.nodes = 1;
  options.master = cluster;
  return mv_node_open(&options, node);
}
#ifndef __SANITIZE_ADDRESS__
static void* opens_nodes(void* stop) {
  mv_node node = 0;
  while (!__atomic_load_n((int*)stop, __ATOMIC_RELAXED)) {
    if (open_inproc("restless", &node) != MV_OK || mv_shutdown(node) != MV_OK) return stop;
  }
  return NULL;
}
#endif
static mv_node within;
static void opens_one_of_the_same_name(void) {
  mv_node own = 0;
  float value = 5;
  mv_table table_of_own = 0;
  CHILD_CHECK(open_inproc("forked", &own) == MV_OK);
  CHILD_CHECK(mv_table_create_text(own, "size=1 name=w", NULL, 0, MV_F32, &table_of_own) == MV_OK);
  CHILD_CHECK(mv_table_get(table_of_own, &value, 1, MV_F32, NULL) == MV_OK && value == 0);
  CHILD_CHECK(mv_shutdown(own) == MV_OK);
}
/** The names of a process's own nodes belong to the parent only, whatever its other threads do with them. */
static void names_within_the_process_are_the_childs_own(void** state) {
  (void)state;
  skip_under_thread_sanitizer();
  expect_ok(open_inproc("forked", &within));
  run_child(opens_one_of_the_same_name);
#ifndef __SANITIZE_ADDRESS__ /* the other thread may hold a lock of malloc() */
  int stop = 0;
  void* failed = NULL;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, opens_nodes, &stop), 0);
  for (int i = 0; i < 100; ++i) run_child(opens_one_of_the_same_name);
  __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
  assert_int_equal(pthread_join(thread, &failed), 0);
  assert_null(failed);
#endif
  expect_ok(mv_shutdown(within));
}

static void the_parent_goes_on(void** state) {
  (void)state;
  float value = 1;
  expect_ok(mv_table_add(table, &value, 1, MV_F32, NULL));
  expect_ok(mv_table_get(table, &value, 1, MV_F32, NULL));
  assert_true(value == 3);
  expect_ok(mv_barrier(0, NULL));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_child_can_do_nothing_before_its_own_init),
      cmocka_unit_test(a_child_may_begin_a_cluster_of_its_own),
      cmocka_unit_test(a_local_store_needs_no_init_in_a_child),
      cmocka_unit_test(so_may_a_grandchild),
      cmocka_unit_test(other_threads_may_hold_locks_at_the_fork),
      cmocka_unit_test(names_within_the_process_are_the_childs_own),
      cmocka_unit_test(the_parent_goes_on),
  };
  return cmocka_run_group_tests(tests, start, end);
}
