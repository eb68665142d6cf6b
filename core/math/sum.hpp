#pragma once
// The sum of several arrays in one pass.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <span>

namespace mv::math {

/// out[i] = sources[0][i] + sources[1][i] + ..., added in this order, of any dtype but halves and MV_RAW. There is at least one source,
/// and none overlaps `out`. Pointers need no alignment; integers wrap around.
void sum_bytes(mv_dtype dtype, std::byte* out, std::span<const std::byte* const> sources, size_t count) noexcept;

}  // namespace mv::math
