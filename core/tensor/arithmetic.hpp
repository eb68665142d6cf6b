#pragma once
// Kernels of one contiguous run of elements. They compute in six dtypes: f32, f64, i64, i32, u8, i8; halves come as f32.
// The same bits on every instruction set: no fused multiply-add, no reassociation.

#include <polyverso/tensor.h>

#include <cstddef>

namespace mv::tensor {

/// An operand: count elements, or one that stands for all.
struct Operand {
  const std::byte* data;
  bool is_single;
};

/// out[i] = a[i] op b[i], op one of mv_tensor_binary_op that is no comparison; not MV_DIV of integers. out may be an
/// operand's memory. A negative power of an integer gives 0: the caller refuses it before.
void binary_run(int op, mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count);
/// out[i] = a[i] op b[i] as u8, op a comparison.
void compare_run(int op, mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count);
/// out[i] = op a[i], op one of mv_tensor_unary_op; of integers only MV_NEG and MV_ABS.
void unary_run(int op, mv_dtype dtype, std::byte* out, const std::byte* a, size_t count);
/// y[i] += alpha * x[i], product and sum each rounded. alpha is an element.
void axpy_run(mv_dtype dtype, std::byte* y, const std::byte* alpha, const std::byte* x, size_t count);

}  // namespace mv::tensor
