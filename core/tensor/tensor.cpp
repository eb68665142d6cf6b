#include "tensor/tensor.hpp"

#include <algorithm>
#include <cstring>

#include "tensor/device.hpp"

namespace mv::tensor {

namespace {

Tensor view_of(const Tensor& tensor, const Shape& shape, size_t first_element) {
  Tensor view = tensor;
  view.shape = shape;
  view.data += first_element * dtype_bytes(tensor.dtype);
  view.is_view = true;
  return view;
}

base::Status need_rows(const char* function, const Tensor& tensor) {
  if (auto status = need_dense(function, tensor); !status.ok()) return status;
  if (tensor.shape.dims == 0)
    return base::error(MV_ESHAPE, "{}: {} has no dimensions, so no rows", function, tensor.text());
  return {};
}

base::Status check_values(const char* function, const void* values, size_t count, mv_dtype dtype, const Shape& shape) {
  if (auto status = check_dtype(function, dtype); !status.ok()) return status;
  if (count != shape.count())
    return base::error(MV_ESHAPE, "{}: {} values given, shape {} needs {}", function, count, shape.text(),
                       shape.count());
  if (values == nullptr && count > 0)
    return base::error(MV_EINVAL, "{}: values is NULL, but count is {}", function, count);
  return {};
}

/// dst[j][i] = src[i][j], in blocks, so that cache lines of both sides are fetched only once.
template <typename T>
void transpose_elements(const std::byte* src, std::byte* dst, size_t rows, size_t cols) {
  constexpr size_t kBlock = 16;
  const T* from = reinterpret_cast<const T*>(src);
  T* to = reinterpret_cast<T*>(dst);
  for (size_t r = 0; r < rows; r += kBlock)
    for (size_t c = 0; c < cols; c += kBlock)
      for (size_t i = r; i < std::min(r + kBlock, rows); ++i)
        for (size_t j = c; j < std::min(c + kBlock, cols); ++j) to[j * rows + i] = from[i * cols + j];
}

}  // namespace

std::string Tensor::text() const {
  return fmt::format("{}{} {}", is_row_sparse() ? "row-sparse " : "", dtype_name(dtype), shape.text());
}

base::Status need_host(const char* function, const Tensor& tensor) {
  if (device_of(tensor) == nullptr) return {};
  return base::error(MV_EINVAL, "{}: {} is on {}: mv_tensor_to() copies it to the host", function, tensor.text(), place_of(tensor));
}

base::Status check_dtype(const char* function, mv_dtype dtype) {
  if (is_table_dtype(dtype)) return {};
  return base::error(MV_EINVAL, "{}: a tensor has one of the dtypes f32, f64, i64, i32, u8, i8, f16, bf16, not {}",
                     function, dtype == MV_RAW ? "MV_RAW" : fmt::format("{}", dtype));
}

base::Status need_dense(const char* function, const Tensor& tensor) {
  if (!tensor.is_row_sparse()) return {};
  return base::error(MV_EINVAL, "{}: {}: a dense tensor is needed: use mv_tensor_to_dense() or mv_tensor_parts()",
                     function, tensor.text());
}

base::Result<Tensor> make_dense(Allocator& allocator, mv_dtype dtype, const Shape& shape, Heap::Content content) {
  auto block = allocator.allocate(shape.count() * dtype_bytes(dtype), content);
  if (!block.ok()) return block.status();
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.block = std::move(block).value();
  tensor.data = tensor.block->data();
  return tensor;
}

base::Result<Tensor> make_lent(const char* function, void* values, size_t count, mv_dtype dtype, const Shape& shape) {
  if (auto status = check_values(function, values, count, dtype, shape); !status.ok()) return status;
  if (reinterpret_cast<uintptr_t>(values) % dtype_bytes(dtype) != 0) {
    return base::error(MV_EINVAL, "{}: the values are at {}, which is not aligned to the {} bytes of {}", function,
                       fmt::ptr(values), dtype_bytes(dtype), dtype_name(dtype));
  }
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.block = Heap::lend(static_cast<std::byte*>(values), count * dtype_bytes(dtype));
  tensor.data = tensor.block->data();
  tensor.is_view = true;
  return tensor;
}

base::Result<Tensor> make_copy_of(const char* function, Heap& heap, const void* values, size_t count, mv_dtype dtype,
                                  const Shape& shape) {
  if (auto status = check_values(function, values, count, dtype, shape); !status.ok()) return status;
  auto made = make_dense(heap, dtype, shape, Heap::Content::kAnything);
  if (!made.ok()) return made;
  auto status = copy_bytes(made.value(), static_cast<const std::byte*>(values), nullptr, made.value().stored_bytes());
  return status.ok() ? made : base::Result<Tensor>(status);
}

base::Result<Tensor> reshape(const char* function, const Tensor& tensor, const int64_t* lengths, uint64_t dims) {
  if (auto status = need_dense(function, tensor); !status.ok()) return status;
  auto shape = fit_shape(function, lengths, dims, tensor.shape.count());
  if (!shape.ok()) return shape.status();
  return view_of(tensor, shape.value(), 0);
}

base::Result<Tensor> slice(const char* function, const Tensor& tensor, int64_t begin, int64_t end) {
  if (auto status = need_rows(function, tensor); !status.ok()) return status;
  if (begin < 0 || end < begin || end > tensor.shape.lengths[0]) {
    return base::error(MV_ERANGE, "{}: rows {} .. {} - 1 are not within {}, which has {} rows", function, begin, end,
                       tensor.text(), tensor.shape.lengths[0]);
  }
  return view_of(tensor, tensor.shape.with_rows(end - begin), static_cast<size_t>(begin) * tensor.shape.row_count());
}

base::Result<Tensor> row(const char* function, const Tensor& tensor, int64_t row) {
  if (auto status = need_rows(function, tensor); !status.ok()) return status;
  if (row < 0 || row >= tensor.shape.lengths[0]) {
    return base::error(MV_ERANGE, "{}: row {} is outside {}, which has {} rows", function, row, tensor.text(),
                       tensor.shape.lengths[0]);
  }
  return view_of(tensor, tensor.shape.without(0), static_cast<size_t>(row) * tensor.shape.row_count());
}

base::Result<Tensor> clone(Heap& heap, const Tensor& tensor) { return move_to(home_of(tensor, heap), tensor); }

base::Result<Tensor> transpose(const char* function, Heap& heap, const Tensor& tensor) {
  if (auto status = need_dense(function, tensor); !status.ok()) return status;
  if (tensor.shape.dims != 2) return base::error(MV_ESHAPE, "{}: a matrix is needed, not {}", function, tensor.text());
  const auto [rows, cols] = std::pair(tensor.shape.lengths[0], tensor.shape.lengths[1]);
  Shape shape = tensor.shape;
  std::swap(shape.lengths[0], shape.lengths[1]);
  auto made = make_dense(home_of(tensor, heap), tensor.dtype, shape, Heap::Content::kAnything);
  if (!made.ok()) return made;
  if (Device* const device = device_of(tensor); device != nullptr) {
    auto status = device->transpose(tensor, made.value());
    return status.ok() ? made : base::Result<Tensor>(status);
  }
  const auto [r, c] = std::pair(static_cast<size_t>(rows), static_cast<size_t>(cols));
  switch (dtype_bytes(tensor.dtype)) {
    case 1:
      transpose_elements<uint8_t>(tensor.data, made.value().data, r, c);
      break;
    case 2:
      transpose_elements<uint16_t>(tensor.data, made.value().data, r, c);
      break;
    case 4:
      transpose_elements<uint32_t>(tensor.data, made.value().data, r, c);
      break;
    default:
      transpose_elements<uint64_t>(tensor.data, made.value().data, r, c);
      break;
  }
  return made;
}

base::Result<std::byte*> locate(const char* function, const Tensor& tensor, const int64_t* index, uint64_t dims) {
  if (dims != tensor.shape.dims || (index == nullptr && dims > 0))
    return base::error(MV_ESHAPE, "{}: {} positions given for an element of {}", function, dims, tensor.text());
  size_t at = 0;
  for (uint32_t i = 0; i < dims; ++i) {
    if (index[i] < 0 || index[i] >= tensor.shape.lengths[i]) {
      return base::error(MV_ERANGE, "{}: position {} in dimension {} is outside {}", function, index[i], i,
                         tensor.text());
    }
    at = at * static_cast<size_t>(tensor.shape.lengths[i]) + static_cast<size_t>(index[i]);
  }
  if (tensor.is_row_sparse()) {
    const int64_t* const end = tensor.held.ids + tensor.held.count;
    const int64_t* const found = std::lower_bound(tensor.held.ids, end, index[0]);
    if (found == end || *found != index[0]) return static_cast<std::byte*>(nullptr);
    const size_t cols = tensor.shape.row_count();
    at = static_cast<size_t>(found - tensor.held.ids) * cols + at % cols;
  }
  return tensor.data + at * dtype_bytes(tensor.dtype);
}

}  // namespace mv::tensor
