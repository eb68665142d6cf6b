#pragma once
// The conversions of single elements that the library and devices share.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/both.hpp"

namespace mv::tensor::both {

/// As cast_elements() converts, but for halves.
template <typename To, typename From>
MV_BOTH To convert(From value) {
  if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // The first number beyond the range is a power of two, which every float type represents exactly.
    constexpr To kHalf = std::numeric_limits<To>::max() / 2 + 1;
    constexpr From kBeyond = static_cast<From>(kHalf) * 2;
    if (std::isnan(value)) return 0;
    if (value >= kBeyond) return std::numeric_limits<To>::max();
    if (value <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  }
  return static_cast<To>(value);
}

/// Rounds to odd: the nearest float towards zero, with its last bit set if inexact. Rounding it to a half then gives
/// the same result as rounding the value directly.
MV_BOTH inline float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (double{nearest} == value || std::isnan(value)) return nearest;
  auto bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(double{nearest}) > std::fabs(value)) --bits;
  return std::bit_cast<float>(bits | 1);
}

/// A double that rounds to the same half as the value: its upper 52 bits, with a sticky last bit for the others.
MV_BOTH inline double upper_bits(int64_t value) {
  const uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const int excess = std::max(0, static_cast<int>(std::bit_width(size)) - 52);
  const uint64_t upper = size >> excess;
  const bool is_cut = upper << excess != size;
  const double kept = std::ldexp(static_cast<double>(upper | (is_cut ? 1 : 0)), excess);
  return value < 0 ? -kept : kept;
}

}  // namespace mv::tensor::both
