#pragma once
// The sum of several arrays in one pass.

#include "math/reduction.hpp"

namespace mv::math {

/// out[i] = sources[0][i] + sources[1][i] + ..., as merge_bytes().
inline void sum_bytes(mv_dtype dtype, std::byte* out, std::span<const std::byte* const> sources, size_t count) noexcept {
  merge_bytes(Reduction::kSum, dtype, out, sources, count);
}

}  // namespace mv::math
