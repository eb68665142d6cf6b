#pragma once
// The standard descriptors of a process.

#include <fcntl.h>
#include <unistd.h>

namespace mv::base {

/// Opens /dev/null in place of those of the descriptors 0 to 2 that are closed. What is opened later would otherwise get these numbers: libuv ends a
/// process that closes one, and a socket would get what the process writes to its standard error.
inline void fill_standard_descriptors() noexcept {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    const int opened = ::open("/dev/null", O_RDWR);  // the lowest that is free, unless another thread has been faster
    if (opened > STDERR_FILENO) ::close(opened);
  }
}

}  // namespace mv::base
