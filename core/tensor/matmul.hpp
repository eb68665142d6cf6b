#pragma once
// The product of two matrices.

#include "tensor/tensor.hpp"

namespace mv::tensor {

/// flags: mv_tensor_matmul_flag. Each element is summed in the order of the inner dimension, and product and sum are
/// rounded separately, so all instruction sets agree.
base::Result<Tensor> matmul(const char* function, Heap& heap, const Tensor& a, const Tensor& b, int flags,
                            const Tensor* out);

}  // namespace mv::tensor
