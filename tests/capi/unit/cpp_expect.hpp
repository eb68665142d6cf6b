#pragma once
// expect.h for tests in C++. Include it last: CMocka's macros have common names.

#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {
#include "expect.h"
}
