#include "transport/loop/spin_policy.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

namespace mv::transport {

namespace {

/// How often the machine's load is read, which takes about 10 microseconds.
constexpr base::Nanos kLoadEvery = std::chrono::milliseconds(10);
/// The largest number of sleeps without a spin, after failures in a row.
constexpr int kMostSkipped = 256;
constexpr int kFreeFailures = 4;

}  // namespace

int runnable_threads() {
  const int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[128] = "";
  const ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  const std::string_view line(text, got > 0 ? static_cast<size_t>(got) : 0);  // "0.10 0.20 0.30 2/345 6789"
  const size_t slash = line.find('/');
  if (slash == std::string_view::npos) return 0;
  const size_t blank = line.rfind(' ', slash);
  int count = 0;
  std::from_chars(line.data() + blank + 1, line.data() + slash, count);
  return count;
}

base::Nanos SpinPolicy::budget(base::Nanos now) {
  if (limit_ == base::Nanos{0}) return limit_;
  if (skip_ > 0) {
    --skip_;
    return base::Nanos{0};
  }
  look_at_load(now);
  return limit_;
}

void SpinPolicy::failed() {
  if (++failures_ <= kFreeFailures) return;
  skip_ = std::min(kMostSkipped, 1 << std::min(failures_ - kFreeFailures, 16));
}

void SpinPolicy::look_at_load(base::Nanos now) {
  if (now < look_again_) return;
  static const long processors = sysconf(_SC_NPROCESSORS_ONLN);
  crowded_ = runnable_threads() > processors;
  look_again_ = now + kLoadEvery;
}

}  // namespace mv::transport
