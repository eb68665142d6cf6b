#pragma once
// A histogram of durations with a fixed number of buckets.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"

namespace mv::base {

/// Bucket i counts the durations of up to 2^i microseconds that exceed the limit of bucket i - 1; the last bucket
/// counts all longer ones. For one thread.
struct Histogram {
  static constexpr size_t kClasses = 30;  ///< buckets with a limit: up to 2^29 µs, nine minutes

  std::array<uint64_t, kClasses + 1> counts{};
  Nanos sum{0};

  void record(Nanos span) {
    const uint64_t nanos = span.count() > 0 ? static_cast<uint64_t>(span.count()) : 0;
    const uint64_t micros = (nanos + 999) / 1000;
    const auto index = micros <= 1 ? size_t{0} : static_cast<size_t>(std::bit_width(micros - 1));
    ++counts[index < kClasses ? index : kClasses];
    sum += Nanos(static_cast<int64_t>(nanos));
  }
  /// The upper limit of a bucket, in seconds; index < kClasses.
  static double limit(size_t index) { return static_cast<double>(uint64_t{1} << index) * 1e-6; }
  uint64_t count() const {
    uint64_t all = 0;
    for (const uint64_t one : counts) all += one;
    return all;
  }
};

}  // namespace mv::base
