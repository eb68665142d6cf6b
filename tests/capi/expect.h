/* What every test of the C interface begins with: CMocka, and assertions that show mv_last_error(). */
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
/** The call fails with this status, and mv_last_error() holds `part`. */
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

#endif
