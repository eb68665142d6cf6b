#pragma once
// A tensor: where its elements are, and what they are. Copying the object shares the elements.

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

/// Rows that a row-sparse tensor holds: ids, ascending, each once. The values are the tensor's own data.
struct HeldRows {
  std::shared_ptr<Block> block;
  const int64_t* ids = nullptr;
  size_t count = 0;
};

struct Tensor {
  mv_dtype dtype = MV_F32;
  Shape shape;
  std::shared_ptr<Block> block;
  std::byte* data = nullptr;  ///< row-sparse: the held rows', one after the other
  HeldRows held;
  bool is_view = false;

  bool is_row_sparse() const { return held.block != nullptr; }
  /// Elements in memory.
  size_t stored() const { return is_row_sparse() ? held.count * shape.row_count() : shape.count(); }
  size_t stored_bytes() const { return stored() * dtype_bytes(dtype); }
  /// Shape of what is in memory.
  Shape stored_shape() const { return is_row_sparse() ? shape.with_rows(static_cast<int64_t>(held.count)) : shape; }
  /// "f32 (2, 3)", "row-sparse f32 (1000, 4)"
  std::string text() const;
};

/// Every function's first argument is the name of the public one on whose behalf it is called: it begins the error's
/// sentence.

base::Status check_dtype(const char* function, mv_dtype dtype);
/// MV_EINVAL for a row-sparse tensor.
base::Status need_dense(const char* function, const Tensor& tensor);

base::Result<Tensor> make_dense(Heap& heap, mv_dtype dtype, const Shape& shape, Heap::Content content);
/// Upon the caller's memory; count and alignment are checked.
base::Result<Tensor> make_lent(const char* function, void* values, size_t count, mv_dtype dtype, const Shape& shape);
/// A copy of the caller's values.
base::Result<Tensor> make_copy_of(const char* function, Heap& heap, const void* values, size_t count, mv_dtype dtype,
                                  const Shape& shape);

/// Views.
base::Result<Tensor> reshape(const char* function, const Tensor& tensor, const int64_t* lengths, uint64_t dims);
base::Result<Tensor> slice(const char* function, const Tensor& tensor, int64_t begin, int64_t end);
base::Result<Tensor> row(const char* function, const Tensor& tensor, int64_t row);

/// Copies of the same dtype.
base::Result<Tensor> clone(Heap& heap, const Tensor& tensor);
base::Result<Tensor> transpose(const char* function, Heap& heap, const Tensor& tensor);

/// Where an element is, or null where a row-sparse tensor does not hold it.
base::Result<std::byte*> locate(const char* function, const Tensor& tensor, const int64_t* index, uint64_t dims);

/// Dtype, shape and elements, for people; long dimensions are cut.
std::string picture(const Tensor& tensor);

}  // namespace mv::tensor
