#pragma once
// Row-sparse tensors, and access to rows by id.

#include <span>

#include "tensor/tensor.hpp"

namespace mv::tensor {

/// A row-sparse tensor with uninitialised values for these rows. The ids are ascending and unique.
base::Result<Tensor> make_rows(Allocator& allocator, mv_dtype dtype, const Shape& shape, std::span<const int64_t> ids);
/// A row-sparse tensor of `height` rows with copies of the rows of `values`. Rows of repeated ids are summed, halves as
/// floats.
base::Result<Tensor> make_sparse(const char* function, Heap& heap, const int64_t* rows, size_t row_count,
                                 const Tensor& values, int64_t height);
/// The rows with these ids. From a dense tensor: a dense one in the order of the ids. From a row-sparse tensor: a
/// row-sparse one with those of the rows that it holds.
base::Result<Tensor> take(const char* function, Heap& heap, const Tensor& tensor, const int64_t* rows,
                          size_t row_count);
/// Dense views of the ids and values of a row-sparse tensor.
struct Parts {
  Tensor ids, values;
};
base::Result<Parts> parts(const char* function, const Tensor& tensor);
base::Result<Tensor> to_dense(const char* function, Heap& heap, const Tensor& tensor);
base::Result<Tensor> to_sparse(const char* function, Heap& heap, const Tensor& tensor);

}  // namespace mv::tensor
