#pragma once
// Shapes: the lengths of a tensor's dimensions.

#include <polyverso/tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.hpp"

namespace mv::tensor {

/// The lengths of the dimensions; the first one counts the rows. Elements are row-major, without gaps. The size in
/// bytes of all elements fits a ptrdiff_t.
struct Shape {
  std::array<int64_t, MV_MAX_DIMS> lengths{};
  uint32_t dims = 0;

  size_t count() const;
  /// Length of the first dimension; 1 for a scalar.
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

/// Checks a caller's shape. MV_EINVAL for too many dimensions, MV_ESHAPE for a negative length or too many elements.
base::Result<Shape> make_shape(const char* function, const int64_t* lengths, uint64_t dims);
/// The same for an array of `count` elements; one length may be -1, and is then computed.
base::Result<Shape> fit_shape(const char* function, const int64_t* lengths, uint64_t dims, size_t count);
/// The broadcast of two shapes: dimensions of length 1, and missing leading ones, are repeated. MV_ESHAPE names both.
base::Result<Shape> broadcast(const char* function, const Shape& a, const Shape& b);

}  // namespace mv::tensor
