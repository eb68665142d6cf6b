// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/matmul.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tensor/cast.hpp"
#include "tensor/device.hpp"
#include "tensor/dtype.hpp"
#include "tensor/elementwise.hpp"
#include "tensor/matmul.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::tensor::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Computes `cols` columns, at most two vectors, of kRows rows of c. a is row-major with `inner` columns; the panel of
/// b is contiguous: inner x two vectors.
template <size_t kRows, typename T>
HWY_INLINE void multiply_rows(const T* a, const T* panel, T* c, size_t c_stride, size_t inner, size_t cols) {
  const hn::ScalableTag<T> tag;
  const size_t lanes = hn::Lanes(tag);
  const auto zero = hn::Zero(tag);
  auto c00 = zero, c01 = zero, c10 = zero, c11 = zero, c20 = zero, c21 = zero, c30 = zero, c31 = zero;
  for (size_t k = 0; k < inner; ++k) {
    const auto b0 = hn::Load(tag, panel + k * 2 * lanes), b1 = hn::Load(tag, panel + k * 2 * lanes + lanes);
    const auto add = [&](size_t row, auto& low, auto& high) HWY_ATTR {
      const auto value = hn::Set(tag, a[row * inner + k]);
      low = hn::Add(low, hn::Mul(value, b0));
      high = hn::Add(high, hn::Mul(value, b1));
    };
    add(0, c00, c01);
    if constexpr (kRows > 1) add(1, c10, c11);
    if constexpr (kRows > 2) add(2, c20, c21);
    if constexpr (kRows > 3) add(3, c30, c31);
  }
  const auto store = [&](size_t row, auto low, auto high) HWY_ATTR {
    HWY_ALIGN T line[2 * hn::MaxLanes(tag)];
    hn::Store(low, tag, line);
    hn::Store(high, tag, line + lanes);
    std::memcpy(c + row * c_stride, line, cols * sizeof(T));
  };
  store(0, c00, c01);
  if constexpr (kRows > 1) store(1, c10, c11);
  if constexpr (kRows > 2) store(2, c20, c21);
  if constexpr (kRows > 3) store(3, c30, c31);
}

/// c = a b, all row-major: rows x inner, inner x cols.
template <typename T>
HWY_INLINE void multiply(const std::byte* a_bytes, const std::byte* b_bytes, std::byte* c_bytes, size_t rows,
                         size_t inner, size_t cols) {
  const T* a = reinterpret_cast<const T*>(a_bytes);
  const T* b = reinterpret_cast<const T*>(b_bytes);
  T* c = reinterpret_cast<T*>(c_bytes);
  const size_t width = 2 * hn::Lanes(hn::ScalableTag<T>());
  std::vector<T> memory(inner * width + 64 / sizeof(T));
  T* panel = memory.data();
  while (reinterpret_cast<uintptr_t>(panel) % 64 != 0) ++panel;
  for (size_t first = 0; first < cols; first += width) {
    const size_t count = std::min(width, cols - first);
    for (size_t k = 0; k < inner; ++k) std::memcpy(panel + k * width, b + k * cols + first, count * sizeof(T));
    size_t row = 0;
    for (; row + 4 <= rows; row += 4)
      multiply_rows<4>(a + row * inner, panel, c + row * cols + first, cols, inner, count);
    for (; row < rows; ++row) multiply_rows<1>(a + row * inner, panel, c + row * cols + first, cols, inner, count);
  }
}

void multiply_floats(mv_dtype dtype, const std::byte* a, const std::byte* b, std::byte* c, size_t rows, size_t inner, size_t cols) {
  dtype == MV_F32 ? multiply<float>(a, b, c, rows, inner, cols) : multiply<double>(a, b, c, rows, inner, cols);
}

}  // namespace mv::tensor::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::tensor {
HWY_EXPORT(multiply_floats);

namespace {

base::Status check(const char* function, const Tensor& a, const Tensor& b, int flags) {
  if ((flags & ~(MV_TRANSPOSE_A | MV_TRANSPOSE_B)) != 0)
    return base::error(MV_EINVAL, "{}: the flags {:#x} contain unknown bits: use those of mv_tensor_matmul_flag",
                       function, static_cast<unsigned>(flags));
  if (auto status = need_dense(function, a); !status.ok()) return status;
  if (auto status = need_dense(function, b); !status.ok()) return status;
  if (a.shape.dims != 2 || b.shape.dims != 2)
    return base::error(MV_ESHAPE, "{}: two matrices are needed, not {} and {}", function, a.text(), b.text());
  if (a.dtype != b.dtype || !is_floating(a.dtype)) {
    return base::error(MV_EDTYPE, "{}: {} and {}: both must have the same float dtype, see mv_tensor_cast()", function,
                       a.text(), b.text());
  }
  return {};
}

base::Result<Shape> product_shape(const char* function, const Tensor& a, const Tensor& b, int flags) {
  const bool across_a = (flags & MV_TRANSPOSE_A) != 0, across_b = (flags & MV_TRANSPOSE_B) != 0;
  const int64_t columns = a.shape.lengths[across_a ? 0 : 1], rows = b.shape.lengths[across_b ? 1 : 0];
  if (columns != rows) {
    return base::error(MV_ESHAPE, "{}: {} columns do not match {} rows: {}{} and {}{}", function, columns, rows, a.text(),
                       across_a ? " transposed" : "", b.text(), across_b ? " transposed" : "");
  }
  const int64_t lengths[2] = {a.shape.lengths[across_a ? 1 : 0], b.shape.lengths[across_b ? 0 : 1]};
  return make_shape(function, lengths, 2);
}

/// The product, or `out` with a copy of it.
base::Result<Tensor> deliver(const char* function, Heap& heap, Tensor made, const Tensor* out) {
  if (out == nullptr) return made;
  if (out->shape != made.shape)
    return base::error(MV_ESHAPE, "{}: the result is {}, but out is {}", function, made.text(), out->text());
  if (auto status = same_place(function, made, *out); !status.ok()) return status;
  return copy(function, heap, made, out);
}

base::Result<Tensor> multiply_on_device(const char* function, Heap& heap, const Tensor& a, const Tensor& b, int flags, const Tensor* out) {
  const auto shape = product_shape(function, a, b, flags);
  if (!shape.ok()) return shape.status();
  auto made = make_dense(home_of(a, heap), a.dtype, shape.value(), Heap::Content::kAnything);
  if (!made.ok()) return made;
  if (auto status = device_of(a)->matmul(a, b, flags, made.value()); !status.ok()) return status;
  return deliver(function, heap, std::move(made).value(), out);
}

/// Summed as floats, and rounded once.
base::Result<Tensor> multiply_halves(const char* function, Heap& heap, const Tensor& a, const Tensor& b, int flags, const Tensor* out) {
  const auto left = cast(function, heap, a, MV_F32), right = cast(function, heap, b, MV_F32);
  if (!left.ok()) return left;
  if (!right.ok()) return right;
  auto made = matmul(function, heap, left.value(), right.value(), flags, nullptr);
  if (made.ok()) made = cast(function, heap, made.value(), a.dtype);
  return made.ok() ? deliver(function, heap, std::move(made).value(), out) : made;
}

}  // namespace

base::Result<Tensor> matmul(const char* function, Heap& heap, const Tensor& a, const Tensor& b, int flags,
                            const Tensor* out) {
  if (auto status = check(function, a, b, flags); !status.ok()) return status;
  if (auto status = same_place(function, a, b); !status.ok()) return status;
  if (storage_dtype(a.dtype) != a.dtype) return multiply_halves(function, heap, a, b, flags, out);
  if (device_of(a) != nullptr) return multiply_on_device(function, heap, a, b, flags, out);
  auto left = (flags & MV_TRANSPOSE_A) != 0 ? transpose(function, heap, a) : base::Result<Tensor>(a);
  auto right = (flags & MV_TRANSPOSE_B) != 0 ? transpose(function, heap, b) : base::Result<Tensor>(b);
  if (!left.ok()) return left;
  if (!right.ok()) return right;
  const auto shape = product_shape(function, a, b, flags);
  if (!shape.ok()) return shape.status();
  const Shape &of_a = left.value().shape, &of_b = right.value().shape;
  auto made = make_dense(heap, a.dtype, shape.value(), Heap::Content::kAnything);
  if (!made.ok()) return made;
  const auto rows = of_a.rows(), inner = of_b.rows(), cols = of_b.row_count();
  HWY_DYNAMIC_DISPATCH(multiply_floats)(a.dtype, left.value().data, right.value().data, made.value().data, rows, inner, cols);
  return deliver(function, heap, std::move(made).value(), out);
}

}  // namespace mv::tensor
#endif  // HWY_ONCE
