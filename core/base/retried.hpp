#pragma once

#include <cerrno>

namespace mv::base {

/// The result of a system call that signals may have interrupted.
template <typename Call>
auto retried(Call call) -> decltype(call()) {
  for (;;)
    if (const auto result = call(); result >= 0 || errno != EINTR) return result;
}

}  // namespace mv::base
