#pragma once
// What can be computed of row-sparse tensors without their other rows. The results are row-sparse, too.

#include "tensor/tensor.hpp"

namespace mv::tensor {

/// Whether such an operator leaves rows of zeros zeros: MV_MUL and MV_DIV by a number.
bool keeps_zeros(int op);
/// Each row that it holds op value, for such an operator.
base::Result<Tensor> scale_rows(const char* function, Heap& heap, int op, const Tensor& rows, double value);
/// y + alpha * x of two row-sparse tensors of one shape: the union of their rows. The dtypes as in binary().
base::Result<Tensor> add_rows(const char* function, Heap& heap, double alpha, const Tensor& x, const Tensor& y);

}  // namespace mv::tensor
