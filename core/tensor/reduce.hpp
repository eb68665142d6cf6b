#pragma once
// Reductions of tensors. The order of the operations depends only on the number of elements: bit-equal everywhere.

#include "tensor/tensor.hpp"

namespace mv::tensor {

/// An mv_tensor_reduce_op along `axis`, or over all elements with MV_ALL_AXES.
base::Result<Tensor> reduce(const char* function, Heap& heap, int op, const Tensor& tensor, int64_t axis);
/// The sum of the products.
base::Result<double> dot(const char* function, const Tensor& a, const Tensor& b);
/// Whether |a - b| <= absolute + relative * |b| for all elements; false for different shapes.
base::Result<bool> close(const char* function, const Tensor& a, const Tensor& b, double relative, double absolute);

}  // namespace mv::tensor
