#pragma once
// The weighted mean of two arrays, by one of them. Kernels as in kernels.hpp: the same bits on all instruction sets.
//
// For any dtype but MV_RAW. Floats are weighed in their own precision, halves as floats and rounded to nearest, ties to even. Pointers
// need no alignment; the ranges do not overlap. Both give the sum of the squares of what the two models are apart, to rounding: it costs
// nothing beside the memory that is read.

#include <polyverso/polyverso.h>

#include <cstddef>

namespace mv::math {

/// dst[i] = factor * src[i] + (1 - factor) * dst[i], in one pass; integers as doubles, rounded to the nearest integer. Equal values stay
/// what they are only as far as rounding lets them.
double average_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, double factor) noexcept;

/// dst[i] += factor * (src[i] - base[i]): moves from base, which dst was some time ago, towards src. Two that do this to each other with one
/// factor keep the sum of theirs, to rounding; of integers exactly: their steps are rounded towards zero.
double approach_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, const std::byte* base, size_t count, double factor) noexcept;

}  // namespace mv::math
