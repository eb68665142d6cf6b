#pragma once
// Element-wise arithmetic of whole tensors: broadcasting, dtype promotion and results in place. The kernels are in
// arithmetic.hpp.
//
// If `out` is null, the result is a new tensor. Otherwise `out` receives the result, converted to its dtype, and is
// returned. It may be an operand or overlap one.

#include "tensor/tensor.hpp"

namespace mv::tensor {

base::Result<Tensor> unary(const char* function, Heap& heap, int op, const Tensor& a, const Tensor* out);
base::Result<Tensor> binary(const char* function, Heap& heap, int op, const Tensor& a, const Tensor& b,
                            const Tensor* out);
/// a op value, or value op a.
base::Result<Tensor> scalar(const char* function, Heap& heap, int op, const Tensor& a, double value, bool is_swapped,
                            const Tensor* out);
/// Copies the values to `out`, broadcast to its shape; without `out`, a clone.
base::Result<Tensor> copy(const char* function, Heap& heap, const Tensor& a, const Tensor* out);
/// y += alpha * x; x may be row-sparse.
base::Status axpy(const char* function, Heap& heap, double alpha, const Tensor& x, const Tensor& y);

base::Status fill(const char* function, const Tensor& tensor, double value);
/// Element i = start + i * step.
base::Status range(const char* function, const Tensor& tensor, double start, double step);

/// The operator's name: "MV_ADD".
const char* binary_name(int op);

}  // namespace mv::tensor
