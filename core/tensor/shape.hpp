#pragma once
// The lengths of a tensor's dimensions, and what can be said of them without the elements.

#include <polyverso/tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace mv::tensor {

/// Lengths, the first one being the rows. Elements lie row by row, without gaps. The product of the lengths is small
/// enough for its elements to be counted in bytes.
struct Shape {
  std::array<int64_t, MV_MAX_DIMS> lengths{};
  uint32_t dims = 0;

  size_t count() const;
  /// Length of the first dimension; 1 if there is none.
  size_t rows() const { return dims == 0 ? 1 : static_cast<size_t>(lengths[0]); }
  /// Elements of one row.
  size_t row_count() const;
  /// Without the dimension `axis`.
  Shape without(uint32_t axis) const;
  /// With another number of rows.
  Shape with_rows(int64_t rows) const;
  /// "(2, 3)", "(5,)", "()"
  std::string text() const;

  bool operator==(const Shape&) const = default;
};

/// Checks what a caller gave. MV_EINVAL for too many dimensions, MV_ESHAPE for a negative length or too many elements.
base::Result<Shape> make_shape(const char* function, const int64_t* lengths, uint64_t dims);
/// The same for an array of `count` elements, where one length may be -1.
base::Result<Shape> fit_shape(const char* function, const int64_t* lengths, uint64_t dims, size_t count);
/// What two shapes come to when dimensions of length 1, and missing first ones, are repeated. MV_ESHAPE names both.
base::Result<Shape> broadcast(const char* function, const Shape& a, const Shape& b);

}  // namespace mv::tensor
