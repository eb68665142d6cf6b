/* Common to the tests of the C interface: CMocka, assertions that show mv_last_error(), a node and its tables. */
#ifndef POLYVERSO_TESTS_EXPECT_H
#define POLYVERSO_TESTS_EXPECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <polyverso/polyverso.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/** The call succeeds. */
#define expect_ok(call) expect_ok_at((call), #call, __FILE__, __LINE__)
/** The call fails with this status, and mv_last_error() contains `part`. */
#define expect_error(call, status, part) expect_error_at((call), (status), (part), #call, __FILE__, __LINE__)

static inline void expect_ok_at(mv_status got, const char* call, const char* file, int line) {
  if (got == MV_OK) return;
  print_error("%s\n  gave %s: %s\n", call, mv_status_name(got), mv_last_error());
  _fail(file, line);
}

static inline void expect_error_at(mv_status got, mv_status want, const char* part, const char* call, const char* file,
                                   int line) {
  if (got == want && strstr(mv_last_error(), part) != NULL) return;
  print_error("%s\n  gave %s: %s\n  not %s: ...%s...\n", call, mv_status_name(got), got == MV_OK ? "" : mv_last_error(),
              mv_status_name(want), part);
  _fail(file, line);
}

/* ------------------------------------------------------------ a cluster of one process, for the length of a test */

static inline int start_alone(void** state) {
  (void)state;
  expect_ok(mv_init(NULL));
  return 0;
}
static inline int end_alone(void** state) {
  (void)state;
  expect_ok(mv_shutdown(0));
  return 0;
}
#define TEST_ALONE(function) cmocka_unit_test_setup_teardown(function, start_alone, end_alone)

/** A table of zeros on the default node, from a specification as text. */
static inline mv_table create_table(const char* spec) {
  mv_table table = 0;
  expect_ok(mv_table_create_text(0, spec, NULL, 0, MV_F32, &table));
  assert_true(table > 0 && table < (INT64_C(1) << 53));
  return table;
}

#endif
