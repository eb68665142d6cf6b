#pragma once
// Chooses how a block is written for the other rank: through the caches, or past them.

#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"

namespace mv::intranode {

/// Measures whether copying through the caches or past them (streaming stores) is faster, and chooses the faster way.
/// Two ranks on processors that share a cache pass values through it. Without a shared cache, each line that is written
/// must first be fetched from the other's cache, which takes ten times as long as writing past the caches. The
/// processors of the ranks can change at any time. The method in use is therefore timed, and the other one is tried now
/// and then.
class Distance {
 public:
  /// Whether to write the next block past the caches.
  bool past_caches();
  /// Whether to time that block, and report it to took().
  bool timed() const { return timed_; }
  void took(size_t bytes, base::Nanos span);

 private:
  static constexpr int kTryEvery = 128, kTimeEvery = 8;  ///< blocks
  /// Reading values that were written past the caches also takes longer. Writing past them must therefore be this much
  /// faster. This factor is a guess. The trial of whole operations (choices.hpp), which includes the reading, decides
  /// whether staging is worth it at all.
  static constexpr double kWorth = 3;

  double by_caches_ = 0, past_caches_ = 0;  ///< nanoseconds per byte, smoothed; 0: unknown
  int until_try_ = kTryEvery;
  bool past_ = false, timed_ = false;  ///< of the last block
};

}  // namespace mv::intranode
