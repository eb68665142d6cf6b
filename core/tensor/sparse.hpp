#pragma once
// Row-sparse tensors, and rows by their ids.

#include <span>

#include "tensor/tensor.hpp"

namespace mv::tensor {

/// Room for these rows of a row-sparse tensor; ids ascending, each once.
base::Result<Tensor> make_rows(Heap& heap, mv_dtype dtype, const Shape& shape, std::span<const int64_t> ids);
/// A row-sparse tensor of `height` rows with copies of the values' rows; those of repeated ids are summed, halves as
/// floats.
base::Result<Tensor> make_sparse(const char* function, Heap& heap, const int64_t* rows, size_t row_count,
                                 const Tensor& values, int64_t height);
/// Of a dense tensor its rows in the order of the ids; of a row-sparse one those that it holds, row-sparse.
base::Result<Tensor> take(const char* function, Heap& heap, const Tensor& tensor, const int64_t* rows,
                          size_t row_count);
/// Dense views of a row-sparse tensor's ids and values.
struct Parts {
  Tensor ids, values;
};
base::Result<Parts> parts(const char* function, const Tensor& tensor);
base::Result<Tensor> to_dense(const char* function, Heap& heap, const Tensor& tensor);
base::Result<Tensor> to_sparse(const char* function, Heap& heap, const Tensor& tensor);

}  // namespace mv::tensor
