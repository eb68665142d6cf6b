#pragma once
// Elements of one dtype as those of another.

#include <polyverso/tensor.h>

#include <cstddef>

#include "tensor/tensor.hpp"

namespace mv::tensor {

/// How many elements are worked on at a time where they must be converted on the way: few enough to stay in the first
/// cache.
inline constexpr size_t kChunk = 512;
/// Room for a chunk of any dtype.
struct alignas(64) Chunk {
  std::byte bytes[kChunk * sizeof(double)];
};

/// dst[i] = src[i]. Floats round to nearest even, once, also where they are narrowed by several steps; floats to
/// integers are cut towards zero and end at the range's ends, NaN is 0; integers to narrower ones wrap. The ranges are
/// one, of dtypes of one size, or do not overlap.
void cast_elements(mv_dtype to, std::byte* dst, mv_dtype from, const std::byte* src, size_t count);
/// One element of any dtype, of a double or as one.
void store_element(mv_dtype dtype, std::byte* at, double value);
double load_element(mv_dtype dtype, const std::byte* at);

/// What elements of two dtypes become before they meet: NumPy's promotion, with bf16 beside f16 and f32 above both.
mv_dtype common_dtype(mv_dtype a, mv_dtype b);

/// A copy of another dtype.
base::Result<Tensor> cast(const char* function, Heap& heap, const Tensor& tensor, mv_dtype dtype);

}  // namespace mv::tensor
