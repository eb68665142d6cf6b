#pragma once
// The element-wise reductions of several arrays to one.

#include <polyverso/polyverso.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace mv::math {

/// kAverage is computed as kSum, followed by divide_bytes().
enum class Reduction : uint8_t { kSum = 1, kProd = 2, kMin = 3, kMax = 4, kAverage = 5 };

constexpr const char* reduction_name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kProd:
      return "prod";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
    case Reduction::kAverage:
      return "avg";
  }
  return "unknown";
}

// Memory of `count` elements of any dtype except MV_RAW, without alignment. Kernels as in kernels.hpp: bit-equal on all
// instruction sets. Integers wrap; halves are computed in f32 and rounded once, at the end. min and max return NaN if
// either operand is NaN.

/// dst[i] = sources[0][i] op sources[1][i] op …, from the left, for at least one source; for kAverage, which is for
/// floats only, the sum is then divided by `divisor`. One pass. dst may be one of the sources, but must not overlap
/// them otherwise.
void merge_bytes(Reduction reduction, mv_dtype dtype, std::byte* dst, std::span<const std::byte* const> sources, size_t count,
                 uint64_t divisor = 1) noexcept;

/// The operand of f that the destination is. It matters if both operands are NaN, or zeros of opposite signs.
enum class Operand { kFirst, kSecond };
/// dst[i] = f(dst[i], src[i]); or f(src[i], dst[i]) if dst is the second operand. The ranges do not overlap.
void reduce_bytes(Reduction reduction, mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, Operand dst_is) noexcept;
/// values[i] /= divisor. Floats only.
void divide_bytes(mv_dtype dtype, std::byte* values, size_t count, uint64_t divisor) noexcept;
/// The neutral element: 0 for sums, 1 for products, the greatest value for min, the least for max.
void fill_neutral(Reduction reduction, mv_dtype dtype, std::byte* values, size_t count) noexcept;

}  // namespace mv::math
