#pragma once
// CMocka for C++.

extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
}

// These macros clash with names of the core.
#undef fail
#undef fail_msg
/// Fails the test, with a printf-like message.
#define fail_test(...)                  \
  do {                                  \
    print_error("ERROR: " __VA_ARGS__); \
    print_error("\n");                  \
    _fail(__FILE__, __LINE__);          \
  } while (0)
