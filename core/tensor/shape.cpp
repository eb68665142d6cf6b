#include "tensor/shape.hpp"

#include <algorithm>
#include <limits>

#include <fmt/ranges.h>

namespace mv::tensor {

namespace {

/// Elements have at most 8 bytes, so the size in bytes fits a ptrdiff_t.
constexpr int64_t kMostElements = std::numeric_limits<int64_t>::max() / 8;

base::Status check_dims(const char* function, const int64_t* lengths, uint64_t dims) {
  if (dims > MV_MAX_DIMS)
    return base::error(MV_EINVAL, "{}: {} dimensions given, a tensor has at most {}", function, dims, MV_MAX_DIMS);
  if (lengths == nullptr && dims > 0)
    return base::error(MV_EINVAL, "{}: the shape is NULL, but dims is {}", function, dims);
  return {};
}

}  // namespace

size_t Shape::count() const {
  size_t product = 1;
  for (uint32_t i = 0; i < dims; ++i) product *= static_cast<size_t>(lengths[i]);
  return product;
}

size_t Shape::row_count() const {
  size_t product = 1;
  for (uint32_t i = 1; i < dims; ++i) product *= static_cast<size_t>(lengths[i]);
  return product;
}

Shape Shape::without(uint32_t axis) const {
  Shape rest;
  for (uint32_t i = 0; i < dims; ++i)
    if (i != axis) rest.lengths[rest.dims++] = lengths[i];
  return rest;
}

Shape Shape::with_rows(int64_t rows) const {
  Shape other = *this;
  other.lengths[0] = rows;
  return other;
}

std::string Shape::text() const {
  if (dims == 1) return fmt::format("({},)", lengths[0]);
  return fmt::format("({})", fmt::join(lengths.begin(), lengths.begin() + dims, ", "));
}

base::Result<Shape> make_shape(const char* function, const int64_t* lengths, uint64_t dims) {
  if (auto status = check_dims(function, lengths, dims); !status.ok()) return status;
  Shape shape;
  shape.dims = static_cast<uint32_t>(dims);
  std::copy_n(lengths, dims, shape.lengths.begin());
  // A length of 0 makes the product 0. The other lengths are still limited, because callers may compute a row's size.
  int64_t product = 1;
  for (uint32_t i = 0; i < shape.dims; ++i) {
    const int64_t length = shape.lengths[i];
    if (length < 0) return base::error(MV_ESHAPE, "{}: {} has a negative length", function, shape.text());
    if (length > 0 && product > kMostElements / length)
      return base::error(MV_ESHAPE, "{}: {} is too large", function, shape.text());
    product *= std::max<int64_t>(length, 1);
  }
  return shape;
}

base::Result<Shape> fit_shape(const char* function, const int64_t* lengths, uint64_t dims, size_t count) {
  if (auto status = check_dims(function, lengths, dims); !status.ok()) return status;
  std::array<int64_t, MV_MAX_DIMS> given{};
  std::copy_n(lengths, dims, given.begin());
  const auto end = given.begin() + static_cast<ptrdiff_t>(dims);
  const auto open = std::find(given.begin(), end, -1);
  if (open != end) *open = 1;
  auto shape = make_shape(function, given.data(), dims);
  if (!shape.ok()) return shape;
  if (open != end) {
    const size_t others = shape.value().count();
    const bool fits = others > 0 && count % others == 0;
    if (fits) shape.value().lengths[static_cast<size_t>(open - given.begin())] = static_cast<int64_t>(count / others);
  }
  if (shape.value().count() == count && (open == end || shape.value().count() > 0 || count == 0)) return shape;
  std::copy_n(lengths, dims, shape.value().lengths.begin());
  return base::error(MV_ESHAPE, "{}: {} elements do not fit shape {}", function, count, shape.value().text());
}

base::Result<Shape> broadcast(const char* function, const Shape& a, const Shape& b) {
  Shape both;
  both.dims = std::max(a.dims, b.dims);
  for (uint32_t i = 1; i <= both.dims; ++i) {
    const int64_t of_a = i <= a.dims ? a.lengths[a.dims - i] : 1, of_b = i <= b.dims ? b.lengths[b.dims - i] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1)
      return base::error(MV_ESHAPE, "{}: {} and {} can't be broadcast together", function, a.text(), b.text());
    both.lengths[both.dims - i] = of_a == 1 ? of_b : of_a;
  }
  return make_shape(function, both.lengths.data(), both.dims);
}

}  // namespace mv::tensor
