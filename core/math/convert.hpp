#pragma once
// Conversions between 16-bit floats and f32: IEEE binary16 (MV_F16) and bfloat16, the upper half of a binary32
// (MV_BF16). Kernels as in kernels.hpp: bit-equal on all instruction sets, without the conversion instructions that
// only some of them have.
//
// Narrowing rounds to nearest, ties to even; overflow gives infinity, underflow a subnormal or zero. In both directions
// a NaN stays a NaN, becomes quiet, and keeps its sign and the upper bits of its payload.

#include <polyverso/polyverso.h>

#include <cstddef>

namespace mv::math {

// dst[i] = src[i]; dtype is MV_F16 or MV_BF16. Memory needs no alignment. The ranges do not overlap.

/// dst receives count f32, src holds count halves.
void widen_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept;
/// dst receives count halves, src holds count f32.
void narrow_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept;

}  // namespace mv::math
