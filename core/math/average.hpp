#pragma once
// The weighted mean of two arrays, by one of them. A kernel as in kernels.hpp: the same bits on all instruction sets.

#include <polyverso/polyverso.h>

#include <cstddef>

namespace mv::math {

/// dst[i] = factor * src[i] + (1 - factor) * dst[i], in one pass, for any dtype but MV_RAW. Floats are weighed in their own
/// precision, halves as floats and rounded to nearest, ties to even; integers as doubles and rounded to the nearest integer. Pointers
/// need no alignment; the ranges do not overlap. Equal values stay what they are only as far as rounding lets them.
void average_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, double factor) noexcept;

}  // namespace mv::math
