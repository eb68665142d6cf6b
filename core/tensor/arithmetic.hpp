#pragma once
// Kernels for one contiguous run of elements. They compute in six dtypes: f32, f64, i64, i32, u8, i8; halves are
// widened to f32 first. Bit-equal on all instruction sets: no fused multiply-add, no reassociation. The exception is
// MV_POW of f64, which is the C library's.

#include <polyverso/tensor.h>

#include <cstddef>

namespace mv::tensor {

/// An operand: count elements, or a single one that is repeated.
struct Operand {
  const std::byte* data;
  bool is_single;
};

/// out[i] = a[i] op b[i] for an mv_tensor_binary_op that is no comparison; not MV_DIV of integers. out may be an
/// operand's memory. A negative power of an integer gives 0; callers refuse it.
void binary_run(int op, mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count);
/// out[i] = a[i] op b[i] as u8, for a comparison.
void compare_run(int op, mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count);
/// out[i] = op a[i] for an mv_tensor_unary_op; for integers only MV_NEG and MV_ABS.
void unary_run(int op, mv_dtype dtype, std::byte* out, const std::byte* a, size_t count);
/// y[i] += alpha * x[i]; product and sum are rounded separately. alpha is one element of this dtype.
void axpy_run(mv_dtype dtype, std::byte* y, const std::byte* alpha, const std::byte* x, size_t count);

}  // namespace mv::tensor
