/* Functions that work without a node, and the errors of all others before mv_init(). */
#include <stdio.h>

#include "expect.h"

static void versions_agree(void** state) {
  (void)state;
  assert_int_equal(mv_version(), MV_VERSION_MAJOR * 10000 + MV_VERSION_MINOR * 100 + MV_VERSION_PATCH);
  int major = -1, minor = -1, patch = -1, end = 0;
  assert_int_equal(sscanf(mv_version_text(), "%d.%d.%d%n", &major, &minor, &patch, &end), 3);
  assert_int_equal(mv_version_text()[end], '\0');
  assert_int_equal(major * 10000 + minor * 100 + patch, mv_version());
}

static void every_status_has_name_text_and_family(void** state) {
  (void)state;
#define XX(value, name, family, text)                          \
  assert_int_equal(MV_##name, value);                          \
  assert_string_equal(mv_status_name(MV_##name), "MV_" #name); \
  assert_string_equal(mv_status_message(MV_##name), text);        \
  assert_string_equal(mv_status_family(MV_##name), #family);
  MV_STATUS_MAP(XX)
#undef XX
  assert_string_equal(mv_status_name(MV_OK), "MV_OK");
  assert_string_equal(mv_status_family(MV_OK), "ok");
}

static void invalid_status_numbers_have_a_name(void** state) {
  (void)state;
  const mv_status none[] = {1, -1000, INT32_MIN, INT32_MAX};
  for (size_t i = 0; i < COUNT_OF(none); ++i) {
    assert_string_equal(mv_status_name(none[i]), "MV_UNKNOWN");
    assert_true(strlen(mv_status_message(none[i])) > 0);
    assert_string_equal(mv_status_family(none[i]), "unknown");
  }
}

static void no_failure_no_sentence(void** state) {
  (void)state;
  assert_string_equal(mv_last_error(), "");
}

static void log_levels_are_checked(void** state) {
  (void)state;
  for (int32_t level = MV_LOG_TRACE; level <= MV_LOG_OFF; ++level) expect_ok(mv_log_level_set(level));
  expect_ok(mv_log_level_set(MV_LOG_WARN));
  expect_error(mv_log_level_set(-1), MV_EINVAL, "-1 is not an mv_log_level");
  expect_error(mv_log_level_set(6), MV_EINVAL, "from 0 to 5");
}

static void calls_before_init_say_what_to_call(void** state) {
  (void)state;
  int64_t number = 77;
  int32_t flag = 77;
  uint64_t count = 77;
  float value = 77;
  const int64_t row = 0;
  mv_table table = 77;
  mv_table_info info = MV_TABLE_INFO_INIT;
  mv_table_spec spec = MV_TABLE_SPEC_INIT;
  spec.rows = 1;
#define BEFORE(call) expect_error(call, MV_ESTATE, "call mv_init() first")
  BEFORE(mv_shutdown(0));
  BEFORE(mv_rank(0, &number));
  BEFORE(mv_size(0, &number));
  BEFORE(mv_worker_id(0, &number));
  BEFORE(mv_num_workers(0, &number));
  BEFORE(mv_server_id(0, &number));
  BEFORE(mv_num_servers(0, &number));
  BEFORE(mv_is_master(0, &flag));
  BEFORE(mv_is_sync(0, &flag));
  BEFORE(mv_request_wait(1, 0));
  BEFORE(mv_request_test(1, &flag));
  BEFORE(mv_request_cancel(1));
  BEFORE(mv_request_error(1));
  BEFORE(mv_poll(0, NULL, 0, &count, 0));
  BEFORE(mv_event_fd(0, &flag));
  BEFORE(mv_barrier(0, NULL));
  BEFORE(mv_table_create(0, &spec, NULL, 0, MV_F32, &table));
  BEFORE(mv_table_create_text(0, "size=1", NULL, 0, MV_F32, &table));
  BEFORE(mv_table_open(0, "w", &table));
  BEFORE(mv_table_close(1));
  BEFORE(mv_table_destroy(1));
  BEFORE(mv_table_describe(1, &info));
  BEFORE(mv_table_list(0, NULL, 0, &count));
  BEFORE(mv_metrics_text(0, NULL, 0, &count));
  BEFORE(mv_trace_text(0, NULL, 0, &count));
  BEFORE(mv_table_add(1, &value, 1, MV_F32, NULL));
  BEFORE(mv_table_add_rows(1, &row, 1, &value, 1, MV_F32, NULL));
  BEFORE(mv_table_get(1, &value, 1, MV_F32, NULL));
  BEFORE(mv_table_get_rows(1, &row, 1, &value, 1, MV_F32, NULL));
  BEFORE(mv_table_peek(1, &value, 1, MV_F32, NULL));
  BEFORE(mv_table_peek_rows(1, &row, 1, &value, 1, MV_F32, NULL));
  BEFORE(mv_table_set(1, &value, 1, MV_F32, NULL));
  BEFORE(mv_table_set_rows(1, &row, 1, &value, 1, MV_F32, NULL));
#undef BEFORE
  /* Nothing was written through the pointers. */
  assert_true(number == 77 && flag == 77 && count == 77 && table == 77 && value == 77);
  assert_non_null(strstr(mv_last_error(), "mv_table_set_rows: "));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(no_failure_no_sentence),
      cmocka_unit_test(versions_agree),
      cmocka_unit_test(every_status_has_name_text_and_family),
      cmocka_unit_test(invalid_status_numbers_have_a_name),
      cmocka_unit_test(log_levels_are_checked),
      cmocka_unit_test(calls_before_init_say_what_to_call),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
