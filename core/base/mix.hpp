#pragma once
// A mixing function for hashes and seeded random numbers.

#include <cstdint>

#include "base/both.hpp"

namespace mv::base {

/// A well-mixed hash of a key: the finalizer of SplitMix64 (Steele et al., OOPSLA 2014).
MV_BOTH constexpr uint64_t mix(uint64_t key) {
  key += 0x9e3779b97f4a7c15;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9;
  key = (key ^ (key >> 27)) * 0x94d049bb133111eb;
  return key ^ (key >> 31);
}

}  // namespace mv::base
