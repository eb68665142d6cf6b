#pragma once
// The half of this process's file descriptors that is left to the program, its files and its connections. Without any
// descriptor they fail; without shared memory, tables and groups are only slower.

#include <sys/resource.h>

namespace mv::base {

/// The lowest descriptor of that half.
inline rlim_t first_spare_descriptor() noexcept {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur / 2 : RLIM_INFINITY;
}

}  // namespace mv::base
