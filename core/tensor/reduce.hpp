#pragma once
// Many elements that become one. The order in which they come together depends on their number only: the same bits
// everywhere.

#include "tensor/tensor.hpp"

namespace mv::tensor {

/// `op` of mv_tensor_reduce_op along `axis`, or over all with MV_ALL_AXES.
base::Result<Tensor> reduce(const char* function, Heap& heap, int op, const Tensor& tensor, int64_t axis);
/// Sum of products.
base::Result<double> dot(const char* function, const Tensor& a, const Tensor& b);
/// Whether |a - b| <= absolute + relative * |b| everywhere; false for differing shapes.
base::Result<bool> close(const char* function, const Tensor& a, const Tensor& b, double relative, double absolute);

}  // namespace mv::tensor
