#pragma once
// The element-wise reduction of several arrays to one, for an all-reduce in which one rank sees the values of all.
// Kernels as in kernels.hpp: bit-equal on all instruction sets, and bit-equal to reduction.hpp's steps from the left.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <cstdint>

#include "math/reduction.hpp"

namespace mv::math {

/// dst[i] = sources[0][i] op sources[1][i] op …, from the left, for at least one source; for kAverage the sum is then
/// divided by `divisor`. Any dtype except MV_RAW; averages for floats only. Halves are reduced as floats and rounded
/// once, at the end; integers wrap around. One pass. Pointers need no alignment; dst may be one of the sources, but
/// must not overlap them otherwise.
void merge_bytes(Reduction reduction, mv_dtype dtype, std::byte* dst, const std::byte* const* sources, size_t source_count,
                 size_t count, uint64_t divisor = 1) noexcept;

}  // namespace mv::math
