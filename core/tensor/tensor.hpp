#pragma once
// A tensor: dtype, shape and location of its elements. Copies of the object share the elements.

#include <polyverso/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "tensor/dtype.hpp"
#include "tensor/heap.hpp"
#include "tensor/shape.hpp"

namespace mv::tensor {

/// The ids of the rows that a row-sparse tensor holds, ascending and unique. The values are in the tensor's data.
struct HeldRows {
  std::shared_ptr<Block> block;
  const int64_t* ids = nullptr;
  size_t count = 0;
};

struct Tensor {
  mv_dtype dtype = MV_F32;
  Shape shape;
  std::shared_ptr<Block> block;
  std::byte* data = nullptr;  ///< row-sparse: the held rows, one after the other
  HeldRows held;
  bool is_view = false;

  bool is_row_sparse() const { return held.block != nullptr; }
  /// Elements in memory.
  size_t stored() const { return is_row_sparse() ? held.count * shape.row_count() : shape.count(); }
  size_t stored_bytes() const { return stored() * dtype_bytes(dtype); }
  /// The shape of the elements in memory.
  Shape stored_shape() const { return is_row_sparse() ? shape.with_rows(static_cast<int64_t>(held.count)) : shape; }
  /// "f32 (2, 3)", "row-sparse f32 (1000, 4)"
  std::string text() const;
};

/// The argument `function` is the name of the calling public function. Error messages begin with it. Results are made where
/// the tensors are from which they are computed: in the heap, or in the memory of their device.

base::Status check_dtype(const char* function, mv_dtype dtype);
/// MV_EINVAL for a row-sparse tensor.
base::Status need_dense(const char* function, const Tensor& tensor);
/// MV_EINVAL for a tensor in the memory of a device.
base::Status need_host(const char* function, const Tensor& tensor);

base::Result<Tensor> make_dense(Allocator& allocator, mv_dtype dtype, const Shape& shape, Heap::Content content);
/// A tensor on the caller's memory; checks count and alignment.
base::Result<Tensor> make_lent(const char* function, void* values, size_t count, mv_dtype dtype, const Shape& shape);
/// A copy of the caller's values, which are in the host's memory.
base::Result<Tensor> make_copy_of(const char* function, Heap& heap, const void* values, size_t count, mv_dtype dtype,
                                  const Shape& shape);

/// Views.
base::Result<Tensor> reshape(const char* function, const Tensor& tensor, const int64_t* lengths, uint64_t dims);
base::Result<Tensor> slice(const char* function, const Tensor& tensor, int64_t begin, int64_t end);
base::Result<Tensor> row(const char* function, const Tensor& tensor, int64_t row);

/// Copies of the same dtype.
base::Result<Tensor> clone(Heap& heap, const Tensor& tensor);
base::Result<Tensor> transpose(const char* function, Heap& heap, const Tensor& tensor);

/// The location of an element; null if a row-sparse tensor does not hold its row.
base::Result<std::byte*> locate(const char* function, const Tensor& tensor, const int64_t* index, uint64_t dims);

/// Dtype, shape and elements as text; long dimensions are abbreviated. A tensor of a device is copied to the host.
base::Result<std::string> whole_text(const Tensor& tensor);

}  // namespace mv::tensor
