#include "transport/loop/spin_policy.hpp"

#include <algorithm>

namespace mv::transport {

namespace {

/// The largest number of sleeps without a spin, after failures in a row.
constexpr int kMostSkipped = 256;
constexpr int kFreeFailures = 4;

}  // namespace

base::Nanos SpinPolicy::budget() {
  if (skip_ == 0) return limit_;
  --skip_;
  return base::Nanos{0};
}

void SpinPolicy::failed() {
  if (++failures_ <= kFreeFailures) return;
  skip_ = std::min(kMostSkipped, 1 << std::min(failures_ - kFreeFailures, 16));
}

}  // namespace mv::transport
