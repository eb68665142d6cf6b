#pragma once
// Arithmetic of row-sparse tensors that touches only the rows they hold. The results are row-sparse, too.

#include "tensor/tensor.hpp"

namespace mv::tensor {

/// Whether an operator with a number maps zeros to zeros: MV_MUL and MV_DIV.
bool keeps_zeros(int op);
/// Applies such an operator with `value` to each held row.
base::Result<Tensor> scale_rows(const char* function, Heap& heap, int op, const Tensor& rows, double value);
/// y + alpha * x for two row-sparse tensors of the same shape: the union of their rows. Dtypes as in binary().
base::Result<Tensor> add_rows(const char* function, Heap& heap, double alpha, const Tensor& x, const Tensor& y);

}  // namespace mv::tensor
