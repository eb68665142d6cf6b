#pragma once
// Random numbers of one node: the same for the same seed on every machine.

#include <cstdint>
#include <string_view>

#include "base/mix.hpp"

namespace mv::gossip {

/// SplitMix64 (Steele et al., OOPSLA 2014).
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}
  /// A generator of this node's own: nodes with one seed do not throw the same.
  Rng(uint64_t seed, std::string_view name) : state_(seed) {
    for (const char letter : name) state_ = base::mix(state_ ^ static_cast<unsigned char>(letter));
  }

  uint64_t next() { return base::mix(state_ += 0x9e3779b97f4a7c15); }
  /// 0 .. end - 1, each as likely as the others.
  uint64_t below(uint64_t end) {
    const uint64_t uneven = (0 - end) % end;  // 2^64 mod end: so many numbers would come once too often
    for (;;)
      if (const uint64_t thrown = next(); thrown >= uneven) return thrown % end;
  }
  /// 0 ≤ … < 1
  double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return fraction() < probability; }

 private:
  uint64_t state_;
};

}  // namespace mv::gossip
