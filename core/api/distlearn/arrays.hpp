#pragma once
// Arrays: a model's parameters or gradients as callers hold them, arrays of floats in the callers' memory. 16-bit
// floats are processed as f32.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "engine/collective/operation.hpp"
#include "math/convert.hpp"
#include "tensor/dtype.hpp"

namespace mv::distlearn {

using collective::Array;
using Arrays = std::vector<Array>;

/// MV_EDTYPE or MV_EINVAL if an array is not memory of floats; the text names the array.
base::Status check_floats(const Arrays& arrays);
/// MV_ESHAPE unless the arrays match those of the first call in count and dtype.
base::Status check_alike(const Arrays& first, const Arrays& arrays);
uint64_t bytes_of(const Arrays& arrays);

/// Calls work(T* values, size_t first, size_t count) for all elements of an array as float or double, in pieces if they
/// must be widened or are not aligned. Changes are written back.
template <typename Work>
void for_floats(const Array& array, Work work) {
  constexpr size_t kPiece = 1024;
  const auto whole = [&]<typename T>(T*) {
    if (reinterpret_cast<uintptr_t>(array.data) % alignof(T) == 0) return work(reinterpret_cast<T*>(array.data), size_t{0}, size_t{array.count});
    T piece[kPiece];
    for (size_t first = 0; first < array.count; first += kPiece) {
      const size_t count = std::min<size_t>(kPiece, array.count - first);
      std::memcpy(piece, array.data + first * sizeof(T), count * sizeof(T));
      work(piece, first, count);
      std::memcpy(array.data + first * sizeof(T), piece, count * sizeof(T));
    }
  };
  if (array.dtype == MV_F64) return whole(static_cast<double*>(nullptr));
  if (array.dtype == MV_F32) return whole(static_cast<float*>(nullptr));
  float piece[kPiece];
  for (size_t first = 0; first < array.count; first += kPiece) {
    const size_t count = std::min<size_t>(kPiece, array.count - first);
    std::byte* const halves = array.data + first * 2;
    math::widen_bytes(array.dtype, reinterpret_cast<std::byte*>(piece), halves, count);
    work(piece, first, count);
    math::narrow_bytes(array.dtype, halves, reinterpret_cast<const std::byte*>(piece), count);
  }
}

/// Calls work(value&, other&...) for each element of all arrays, as float or double. The other arrays have that type.
template <typename Work, typename... Others>
void for_each_element(const Arrays& arrays, Work work, const Others&... others) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    for_floats(arrays[i], [&]<typename T>(T* values, size_t first, size_t count) {
      for (size_t at = 0; at < count; ++at) work(values[at], reinterpret_cast<T*>(others[i].data)[first + at]...);
    });
  }
}

/// The elements [first, first + count) of all arrays, one array after another, as arrays in the same memory.
Arrays cut(const Arrays& arrays, uint64_t first, uint64_t count);
uint64_t elements_of(const Arrays& arrays);

}  // namespace mv::distlearn
