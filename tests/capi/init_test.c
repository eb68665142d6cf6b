/* A cluster of one process from every form of mv_init(), its rank and role, and its end. */
#include <pthread.h>
#include <stdlib.h>

#include "expect.h"

static int shut_all(void** state) {
  (void)state;
  while (mv_shutdown(0) == MV_OK) continue;
  unsetenv("POLYVERSO_SYNC");
  return 0;
}

static void nothing_said_is_a_cluster_of_one(void** state) {
  (void)state;
  int64_t rank = -1, size = -1, worker = -1, workers = -1, server = -1, servers = -1;
  int32_t master = -1, sync = -1;
  expect_ok(mv_init(NULL));
  expect_ok(mv_rank(0, &rank));
  expect_ok(mv_size(0, &size));
  expect_ok(mv_worker_id(0, &worker));
  expect_ok(mv_num_workers(0, &workers));
  expect_ok(mv_server_id(0, &server));
  expect_ok(mv_num_servers(0, &servers));
  expect_ok(mv_is_master(0, &master));
  expect_ok(mv_is_sync(0, &sync));
  assert_true(rank == 0 && size == 1 && worker == 0 && workers == 1 && server == 0 && servers == 1 && master == 1 &&
              sync == 0);
  expect_ok(mv_barrier(0, NULL));
  expect_ok(mv_shutdown(0));
}

static void sync_can_be_said_in_each_form(void** state) {
  (void)state;
  int32_t sync = -1;
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.sync = 1;
  expect_ok(mv_init(&options));
  expect_ok(mv_is_sync(0, &sync));
  assert_int_equal(sync, 1);
  expect_ok(mv_shutdown(0));

  sync = -1;
  expect_ok(mv_init_text("sync=1"));
  expect_ok(mv_is_sync(0, &sync));
  assert_int_equal(sync, 1);
  expect_ok(mv_shutdown(0));

  sync = -1;
  char program[] = "train", flag[] = "-sync=true", role[] = "-ps_role=default", own[] = "--epochs=3";
  char* argv[] = {program, flag, role, own, NULL};
  int argc = 4;
  expect_ok(mv_init_args(&argc, argv));
  expect_ok(mv_is_sync(0, &sync));
  assert_int_equal(sync, 1);
  assert_int_equal(argc, 2);
  assert_ptr_equal(argv[1], own);
  assert_null(argv[2]);
  expect_ok(mv_shutdown(0));

  sync = -1;
  setenv("POLYVERSO_SYNC", "yes", 1);
  expect_ok(mv_init(NULL));
  expect_ok(mv_is_sync(0, &sync));
  assert_int_equal(sync, 1);
  expect_ok(mv_shutdown(0));
}

static void inits_are_counted_and_must_agree(void** state) {
  (void)state;
  int64_t rank = -1;
  expect_ok(mv_init_text("sync=0 timeout_ms=700"));
  expect_ok(mv_init(NULL));
  expect_error(mv_init_text("sync=1"), MV_EDISAGREE,
               "sync=1 in the text disagrees with the running node, which has sync=0");
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.timeout_ms = 701;
  expect_error(mv_init(&options), MV_EDISAGREE, "mv_init_options.timeout_ms=701");
  expect_ok(mv_shutdown(0));
  expect_ok(mv_rank(0, &rank));
  expect_ok(mv_shutdown(0));
  expect_error(mv_rank(0, &rank), MV_ESTATE, "mv_init() again");
  expect_error(mv_shutdown(0), MV_ESTATE, "mv_init() again");
}

static void init_may_follow_shutdown(void** state) {
  (void)state;
  for (int round = 0; round < 5; ++round) {
    mv_table table = 0;
    float value = 1;
    expect_ok(mv_init(NULL));
    expect_ok(mv_table_create_text(0, "size=1 name=w", NULL, 0, MV_F32, &table));
    expect_ok(mv_table_get(table, &value, 1, MV_F32, NULL));
    assert_true(value == 0); /* a new cluster, a new table */
    expect_ok(mv_table_add(table, &value, 1, MV_F32, NULL));
    expect_ok(mv_shutdown(0));
    expect_error(mv_table_get(table, &value, 1, MV_F32, NULL), MV_EHANDLE, "closed table handle");
  }
}

static void structs_are_checked(void** state) {
  (void)state;
  mv_init_options options = MV_INIT_OPTIONS_INIT;
  options.size = 3;
  expect_error(mv_init(&options), MV_EINVAL, "mv_init_options.size is 3");
  options.size = UINT32_MAX;
  expect_error(mv_init(&options), MV_EINVAL, "initialise it with its _INIT macro");
  options.size = sizeof(options);
  options.version = 2;
  expect_error(mv_init(&options), MV_EINVAL, "version is 2, this library supports 1");
  options.version = MV_STRUCT_VERSION;
  options.sync = 7;
  expect_error(mv_init(&options), MV_EINVAL, "mv_init_options.sync=7");
  options.sync = MV_UNSET;
  options.role = 9;
  expect_error(mv_init(&options), MV_EINVAL, "mv_init_options.role=9 is not one of worker|server|all");
  options.role = MV_ROLE_UNSET;
  options.nodes = -3;
  expect_error(mv_init(&options), MV_EINVAL, "mv_init_options.nodes=-3");
  options.nodes = 3;
  expect_error(mv_init(&options), MV_EINVAL, "polyverso run -n 3");
  options.nodes = 0;
  options.heartbeat_timeout_ms = -5;
  expect_error(mv_init(&options), MV_EINVAL, "mv_init_options.heartbeat_timeout_ms=-5");
  expect_error(mv_shutdown(0), MV_ESTATE, "");
}

static void a_newer_programs_struct_is_read(void** state) {
  (void)state;
  struct {
    mv_init_options known;
    uint64_t later;
  } newer = {MV_INIT_OPTIONS_INIT, 0};
  newer.known.size = sizeof(newer);
  expect_ok(mv_init(&newer.known));
  expect_ok(mv_shutdown(0));
  newer.later = 1;
  expect_error(mv_init(&newer.known), MV_EINVAL, "sets a field that is newer than this library");
}

static void pointers_may_not_be_null(void** state) {
  (void)state;
  expect_ok(mv_init(NULL));
  expect_error(mv_rank(0, NULL), MV_EINVAL, "mv_rank");
  expect_error(mv_is_sync(0, NULL), MV_EINVAL, "NULL");
  expect_error(mv_event_fd(0, NULL), MV_EINVAL, "NULL");
  expect_error(mv_node_open(NULL, NULL), MV_EINVAL, "NULL");
  int argc = 1;
  expect_error(mv_init_args(&argc, NULL), MV_EINVAL, "both");
  expect_ok(mv_init_text(NULL));
}

static void nodes_stand_beside_each_other(void** state) {
  (void)state;
  mv_node node = 0;
  mv_table here = 0, there = 0;
  float value = 1, got = -1;
  expect_ok(mv_init(NULL));
  expect_ok(mv_node_open(NULL, &node));
  assert_true(node > 0 && node < (INT64_C(1) << 53));
  expect_ok(mv_table_create_text(0, "size=1 name=w", &value, 1, MV_F32, &here));
  expect_ok(mv_table_create_text(node, "size=1 name=w", NULL, 0, MV_F32, &there));
  expect_ok(mv_table_get(there, &got, 1, MV_F32, NULL));
  assert_true(got == 0);
  expect_ok(mv_shutdown(0));
  expect_ok(mv_table_add(there, &value, 1, MV_F32, NULL));
  expect_ok(mv_shutdown(node));
  expect_error(mv_shutdown(node), MV_EHANDLE, "closed node handle");
}

static void* init_and_shutdown(void* unused) {
  (void)unused;
  for (int round = 0; round < 20; ++round) {
    int64_t rank = -1;
    expect_ok(mv_init(NULL));
    expect_ok(mv_rank(0, &rank));
    expect_ok(mv_shutdown(0));
  }
  return NULL;
}

static void threads_may_init_at_once(void** state) {
  (void)state;
  pthread_t threads[4];
  for (size_t i = 0; i < COUNT_OF(threads); ++i)
    assert_int_equal(pthread_create(&threads[i], NULL, init_and_shutdown, NULL), 0);
  for (size_t i = 0; i < COUNT_OF(threads); ++i) pthread_join(threads[i], NULL);
  expect_error(mv_shutdown(0), MV_ESTATE, "");
}

int main(void) {
#define TEST(function) cmocka_unit_test_teardown(function, shut_all)
  const struct CMUnitTest tests[] = {
      TEST(nothing_said_is_a_cluster_of_one),
      TEST(sync_can_be_said_in_each_form),
      TEST(inits_are_counted_and_must_agree),
      TEST(init_may_follow_shutdown),
      TEST(structs_are_checked),
      TEST(a_newer_programs_struct_is_read),
      TEST(pointers_may_not_be_null),
      TEST(nodes_stand_beside_each_other),
      TEST(threads_may_init_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
