#include "transport/loop/spin_policy.hpp"

#include <algorithm>

namespace mv::transport {

namespace {

/// The largest number of sleeps without a spin, after failures in a row.
constexpr int kMostSkipped = 256;
constexpr int kFreeFailures = 4;
/// A spin that took so many times its limit has yielded to a thread that computes. A sleeper would have been woken beside
/// that thread, so the next 16 waits sleep at once, as after so many failures more.
constexpr int kOverrun = 4, kFailuresOfOverrun = 4;

}  // namespace

base::Nanos SpinPolicy::budget() {
  if (skip_ == 0) return limit_;
  --skip_;
  return base::Nanos{0};
}

void SpinPolicy::failed(base::Nanos spun) {
  ++failures_;
  if (spun > kOverrun * limit_) failures_ = std::max(failures_, kFreeFailures + kFailuresOfOverrun);
  if (failures_ <= kFreeFailures) return;
  skip_ = std::min(kMostSkipped, 1 << std::min(failures_ - kFreeFailures, 16));
}

}  // namespace mv::transport
