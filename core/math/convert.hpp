#pragma once
// Half-width floats to f32 and back: IEEE binary16 (MV_F16) and the upper half of a binary32 (MV_BF16). Kernels as in
// kernels.hpp: the same bits on all instruction sets, without the conversion instructions that only some of them have.
//
// Narrowing rounds to nearest, ties to even; what is too large becomes infinity, what is too small a subnormal or zero.
// Both ways a NaN stays one, is made quiet, and keeps its sign and the upper bits of its payload.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace mv::math {

/// dst[i] = src[i], for the size of src, which dst has too. The ranges do not overlap.
void f16_to_f32(std::span<float> dst, std::span<const uint16_t> src) noexcept;
void bf16_to_f32(std::span<float> dst, std::span<const uint16_t> src) noexcept;
void f32_to_f16(std::span<uint16_t> dst, std::span<const float> src) noexcept;
void f32_to_bf16(std::span<uint16_t> dst, std::span<const float> src) noexcept;

// The same for memory whose dtype is known at run time only and that needs no alignment. dtype is MV_F16 or MV_BF16.

/// dst holds count f32, src count halves.
void widen_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept;
/// dst receives count halves, src holds count f32.
void narrow_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept;

}  // namespace mv::math
