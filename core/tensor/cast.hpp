#pragma once
// Conversions of elements from one dtype to another.

#include <polyverso/tensor.h>

#include <cstddef>

#include "tensor/tensor.hpp"

namespace mv::tensor {

/// The number of elements per step of a computation that converts its operands: few enough to stay in the L1 cache.
inline constexpr size_t kChunk = 512;
/// A buffer for a chunk of any dtype.
struct alignas(64) Chunk {
  std::byte bytes[kChunk * sizeof(double)];
};

/// dst[i] = src[i]. Conversions to floats round once, to nearest even, even if they take several steps. Floats to
/// integers truncate towards zero and saturate, NaN becomes 0. Integers to narrower ones wrap. The ranges do not
/// overlap, or are identical with dtypes of the same size.
void cast_elements(mv_dtype to, std::byte* dst, mv_dtype from, const std::byte* src, size_t count);
/// Converts one element of any dtype from or to a double.
void store_element(mv_dtype dtype, std::byte* at, double value);
double load_element(mv_dtype dtype, const std::byte* at);

/// The dtype to which two dtypes are promoted: NumPy's rules, with bf16 on the level of f16, and f32 above both.
mv_dtype common_dtype(mv_dtype a, mv_dtype b);

/// A copy with another dtype.
base::Result<Tensor> cast(const char* function, Heap& heap, const Tensor& tensor, mv_dtype dtype);

}  // namespace mv::tensor
