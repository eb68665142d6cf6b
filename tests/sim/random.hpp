#pragma once
// All random numbers of a simulation come from one seed.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mv::sim {

/// xoshiro256**, seeded by splitmix64. The same numbers on every machine, unlike the standard library's distributions.
class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) word = mix(seed += 0x9e3779b97f4a7c15);
  }

  uint64_t next() {
    const uint64_t result = rotate(state_[1] * 5, 7) * 9, shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = rotate(state_[3], 45);
    return result;
  }
  /// 0 .. end - 1
  uint64_t below(uint64_t end) { return next() % end; }
  /// low .. high, both included
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low + 1)));
  }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }
  /// An index, with these weights.
  size_t pick(const std::vector<double>& weights) {
    double sum = 0;
    for (const double weight : weights) sum += weight;
    double at = static_cast<double>(next() >> 11) * 0x1p-53 * sum;
    for (size_t i = 0; i + 1 < weights.size(); ++i)
      if ((at -= weights[i]) < 0) return i;
    return weights.size() - 1;
  }
  /// A separate generator, so that more random choices in one place do not shift those in another.
  Random fork() { return Random(next()); }

  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

 private:
  static uint64_t rotate(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

  uint64_t state_[4];
};

}  // namespace mv::sim
