#pragma once
// The sum of several arrays in one pass.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <span>

namespace mv::math {

/// out[i] = sources[0][i] + sources[1][i] + ..., added in this order, for any dtype except halves and MV_RAW. At least
/// one source is required; no source overlaps `out`. Pointers need no alignment; integers wrap around.
void sum_bytes(mv_dtype dtype, std::byte* out, std::span<const std::byte* const> sources, size_t count) noexcept;

}  // namespace mv::math
