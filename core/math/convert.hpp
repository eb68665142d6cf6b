#pragma once
// Conversions between 16-bit floats and f32: IEEE binary16 (MV_F16) and bfloat16, the upper half of a binary32
// (MV_BF16). Kernels as in kernels.hpp: bit-equal on all instruction sets, without the conversion instructions that
// only some of them have.
//
// Narrowing rounds to nearest, ties to even; overflow gives infinity, underflow a subnormal or zero. In both directions
// a NaN stays a NaN, becomes quiet, and keeps its sign and the upper bits of its payload.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace mv::math {

/// dst[i] = src[i]. Both have the same size. The ranges do not overlap.
void f16_to_f32(std::span<float> dst, std::span<const uint16_t> src) noexcept;
void bf16_to_f32(std::span<float> dst, std::span<const uint16_t> src) noexcept;
void f32_to_f16(std::span<uint16_t> dst, std::span<const float> src) noexcept;
void f32_to_bf16(std::span<uint16_t> dst, std::span<const float> src) noexcept;

// The same for unaligned memory whose dtype is known only at run time. dtype is MV_F16 or MV_BF16.

/// dst receives count f32, src holds count halves.
void widen_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept;
/// dst receives count halves, src holds count f32.
void narrow_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept;

}  // namespace mv::math
