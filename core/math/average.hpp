#pragma once
// Weighted means of two arrays, stored into one of them. Kernels as in kernels.hpp: bit-equal on all instruction sets,
// except for the sum that they return.
//
// For any dtype except MV_RAW. Floats are computed in their own precision, halves as floats and rounded to nearest,
// ties to even. Pointers need no alignment; the ranges do not overlap. Both functions return the squared distance of
// the two models, up to rounding. It costs next to nothing, because the pass is bound by memory.

#include <polyverso/polyverso.h>

#include <cstddef>

namespace mv::math {

/// dst[i] = factor * src[i] + (1 - factor) * dst[i], in one pass; integers as doubles, rounded to the nearest integer.
/// Where both values are equal, rounding may still change a float.
double average_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, double factor) noexcept;

/// dst[i] += factor * (src[i] - base[i]): a step from base, an earlier state of dst, towards src. If two nodes make
/// this step towards each other with the same factor, their sum is preserved: up to rounding for floats, exactly for
/// integers, whose steps are rounded towards zero.
double approach_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, const std::byte* base, size_t count, double factor) noexcept;

}  // namespace mv::math
