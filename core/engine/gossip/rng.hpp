#pragma once
// The random number generator of a node: the same numbers for the same seed on every machine.

#include <cstdint>
#include <string_view>

#include "base/mix.hpp"

namespace mv::gossip {

/// SplitMix64 (Steele et al., OOPSLA 2014).
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  /// A generator for one node: nodes with the same seed draw different numbers.
  Rng(uint64_t seed, std::string_view name) : state_(seed) {
    for (const char letter : name) state_ = base::mix(state_ ^ static_cast<unsigned char>(letter));
  }

  uint64_t next() { return base::mix(state_ += 0x9e3779b97f4a7c15); }
  /// Uniform in 0 .. end - 1.
  uint64_t below(uint64_t end) {
    const uint64_t uneven = (0 - end) % end;  // 2^64 mod end: rejecting that many numbers removes the bias
    for (;;)
      if (const uint64_t thrown = next(); thrown >= uneven) return thrown % end;
  }
  /// Uniform in 0 ≤ … < 1.
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return fraction() < probability; }

 private:
  uint64_t state_;
};

}  // namespace mv::gossip
