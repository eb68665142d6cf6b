#pragma once

#include <cerrno>

namespace mv::base {

/// Repeats a system call while it fails with EINTR, and returns its result.
template <typename Call>
auto retried(Call call) -> decltype(call()) {
  for (;;)
    if (const auto result = call(); result >= 0 || errno != EINTR) return result;
}

}  // namespace mv::base
