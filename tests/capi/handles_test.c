/* Every function refuses every integer that is not an open handle of the right kind with MV_EHANDLE. */
#include "expect.h"

static mv_node node;
static mv_table table, closed_table;
static mv_request request, used_request;

static int start(void** state) {
  (void)state;
  const float one = 1;
  mv_call_options options = MV_CALL_OPTIONS_INIT;
  expect_ok(mv_init(NULL));
  expect_ok(mv_node_open(NULL, &node));
  expect_ok(mv_table_create_text(0, "size=1", NULL, 0, MV_F32, &table));
  expect_ok(mv_table_create_text(0, "size=1", NULL, 0, MV_F32, &closed_table));
  expect_ok(mv_table_close(closed_table));
  options.flags = MV_ASYNC;
  options.request = &used_request;
  expect_ok(mv_table_add(table, &one, 1, MV_F32, &options));
  expect_ok(mv_request_wait(used_request, 0));
  options.request = &request;
  expect_ok(mv_table_add(table, &one, 1, MV_F32, &options));
  return 0;
}
static int end(void** state) {
  (void)state;
  expect_ok(mv_request_wait(request, 0));
  expect_ok(mv_shutdown(node));
  expect_ok(mv_shutdown(0));
  return 0;
}

static void as_node(int64_t handle) {
  int64_t number = 0;
  int32_t flag = 0;
  uint64_t count = 0;
  mv_table made = 0;
#define REFUSE(call) expect_error(call, MV_EHANDLE, "")
  REFUSE(mv_shutdown(handle));
  REFUSE(mv_rank(handle, &number));
  REFUSE(mv_is_master(handle, &flag));
  REFUSE(mv_event_fd(handle, &flag));
  REFUSE(mv_poll(handle, NULL, 0, &count, 0));
  REFUSE(mv_barrier(handle, NULL));
  REFUSE(mv_table_create_text(handle, "size=1", NULL, 0, MV_F32, &made));
  REFUSE(mv_table_open(handle, "w", &made));
  REFUSE(mv_table_list(handle, NULL, 0, &count));
  REFUSE(mv_doctor_text(handle, 0, NULL, 0, &count));
  REFUSE(mv_metrics_text(handle, NULL, 0, &count));
  REFUSE(mv_trace_text(handle, NULL, 0, &count));
  REFUSE(mv_checkpoint_save(handle, "/nowhere", 0, NULL));
  REFUSE(mv_checkpoint_load(handle, "/nowhere", NULL));
}
static void as_table(int64_t handle) {
  float value = 0;
  int64_t row = 0, next = 0;
  uint64_t found = 0;
  mv_table_info info = MV_TABLE_INFO_INIT;
  REFUSE(mv_table_close(handle));
  REFUSE(mv_table_destroy(handle));
  REFUSE(mv_table_describe(handle, &info));
  REFUSE(mv_table_add(handle, &value, 1, MV_F32, NULL));
  REFUSE(mv_table_add_rows(handle, &row, 1, &value, 1, MV_F32, NULL));
  REFUSE(mv_table_get(handle, &value, 1, MV_F32, NULL));
  REFUSE(mv_table_get_rows(handle, &row, 1, &value, 1, MV_F32, NULL));
  REFUSE(mv_table_peek(handle, &value, 1, MV_F32, NULL));
  REFUSE(mv_table_peek_rows(handle, &row, 1, &value, 1, MV_F32, NULL));
  REFUSE(mv_table_set(handle, &value, 1, MV_F32, NULL));
  REFUSE(mv_table_set_rows(handle, &row, 1, &value, 1, MV_F32, NULL));
  REFUSE(mv_table_erase_rows(handle, &row, 1, NULL));
  REFUSE(mv_table_scan(handle, 0, &row, 1, &value, 1, MV_F32, &next, &found));
  REFUSE(mv_table_clock(handle));
  REFUSE(mv_table_set_updater(handle, "add", NULL));
}
static void as_request(int64_t handle) {
  int32_t done = 77;
  REFUSE(mv_request_wait(handle, 0));
  REFUSE(mv_request_test(handle, &done));
  REFUSE(mv_request_cancel(handle));
  REFUSE(mv_request_error(handle));
  assert_int_equal(done, 77);
#undef REFUSE
}

static void hostile_integers_are_refused_by_everything(void** state) {
  (void)state;
  const int64_t hostile[] = {1,
                             -1,
                             2,
                             42,
                             INT64_MAX,
                             INT64_MIN,
                             INT64_C(1) << 53,
                             (INT64_C(1) << 53) - 1,
                             INT64_C(1) << 52,
                             INT64_C(0xdeadbeef),
                             INT64_C(-4503599627370497),
                             0x7fffffff,
                             -0x7fffffff};
  for (size_t i = 0; i < COUNT_OF(hostile); ++i) {
    as_node(hostile[i]);
    as_table(hostile[i]);
    as_request(hostile[i]);
  }
  as_table(0);
  as_request(0);
}

static void handles_with_a_bit_flipped_are_refused(void** state) {
  (void)state;
  const int64_t open[] = {node, table, request};
  for (size_t i = 0; i < COUNT_OF(open); ++i) {
    for (int bit = 0; bit < 64; ++bit) {
      const int64_t wrong = (int64_t)((uint64_t)open[i] ^ (UINT64_C(1) << bit));
      int is_open = wrong == 0;
      for (size_t k = 0; k < COUNT_OF(open); ++k) is_open |= wrong == open[k];
      int32_t done = 0;
      uint64_t length = 0;
      float value = 0;
      /* A flipped bit may give another open handle, or the default node's own. */
      const mv_status as_a_request = mv_request_test(wrong, &done),
                      as_a_table = mv_table_peek(wrong, &value, 1, MV_F32, NULL);
      const mv_status as_a_node = mv_table_list(wrong, NULL, 0, &length);
      assert_true(is_open || as_a_request == MV_EHANDLE);
      assert_true(is_open || as_a_table == MV_EHANDLE);
      assert_true(is_open || as_a_node == MV_EHANDLE || as_a_node == MV_OK);
    }
  }
}

static void wrong_kinds_are_named(void** state) {
  (void)state;
  float value = 0;
  int64_t rank = 0;
  expect_error(mv_table_get(request, &value, 1, MV_F32, NULL), MV_EHANDLE, "is a request, not a table");
  expect_error(mv_table_get(node, &value, 1, MV_F32, NULL), MV_EHANDLE, "is a node, not a table");
  expect_error(mv_request_wait(table, 0), MV_EHANDLE, "is a table, not a request");
  expect_error(mv_rank(table, &rank), MV_EHANDLE, "is a table, not a node");
  as_table(request);
  as_table(node);
  as_request(table);
  as_request(node);
  as_node(table);
  as_node(request);
}

static void closed_handles_are_distinguished_from_invented_ones(void** state) {
  (void)state;
  float value = 0;
  expect_error(mv_table_get(closed_table, &value, 1, MV_F32, NULL), MV_EHANDLE, "is a closed table handle");
  expect_error(mv_request_wait(closed_table, 0), MV_EHANDLE, "is a closed handle of a table, not a request");
  expect_error(mv_request_wait(used_request, 0), MV_EHANDLE, "already waited for, tested or cancelled");
  expect_error(mv_table_get(12345, &value, 1, MV_F32, NULL), MV_EHANDLE,
               "12345 is not a handle of this library");
  as_table(closed_table);
  as_request(used_request);
}

static void slots_that_are_used_again_do_not_answer_to_old_handles(void** state) {
  (void)state;
  mv_table old[50];
  float value = 0;
  for (size_t i = 0; i < COUNT_OF(old); ++i) {
    expect_ok(mv_table_create_text(0, "size=1", NULL, 0, MV_F32, &old[i]));
    for (size_t k = 0; k < i; ++k) {
      assert_true(old[k] != old[i]);
      assert_int_equal(mv_table_get(old[k], &value, 1, MV_F32, NULL), MV_EHANDLE);
    }
    expect_ok(mv_table_close(old[i]));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(hostile_integers_are_refused_by_everything),
      cmocka_unit_test(handles_with_a_bit_flipped_are_refused),
      cmocka_unit_test(wrong_kinds_are_named),
      cmocka_unit_test(closed_handles_are_distinguished_from_invented_ones),
      cmocka_unit_test(slots_that_are_used_again_do_not_answer_to_old_handles),
  };
  return cmocka_run_group_tests(tests, start, end);
}
