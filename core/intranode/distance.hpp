#pragma once
// Whether values reach the other rank faster by the caches or past them.

#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"

namespace mv::intranode {

/// Two ranks on processors that share a cache pass values on by it. Where they share none, each line that is written has to be asked back
/// from the other's cache first, which takes ten times as long as writing past the caches; and where they run can change at any time. So
/// what each way takes is measured while it is gone, and the other way is tried now and then.
class Distance {
 public:
  /// The way that the next block goes.
  bool past_caches();
  /// Whether anybody wants to know how long that takes: took().
  bool timed() const { return timed_; }
  void took(size_t bytes, base::Nanos span);

 private:
  static constexpr int kTryEvery = 128, kTimeEvery = 8;  ///< blocks
  /// Reading what went past the caches takes longer, too: writing has to be that much faster.
  static constexpr double kWorth = 3;

  double by_caches_ = 0, past_caches_ = 0;  ///< nanoseconds a byte, smoothed; 0: not known
  int until_try_ = kTryEvery;
  bool past_ = false, timed_ = false;  ///< the last one
};

}  // namespace mv::intranode
