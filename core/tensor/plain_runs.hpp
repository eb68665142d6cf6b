#pragma once
// The kernels of arithmetic.hpp that are plain loops: integers, for which all instruction sets agree, and functions
// computed one element at a time.

#include "tensor/arithmetic.hpp"

namespace mv::tensor {

void integer_binary_run(int op, mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count);
void integer_unary_run(int op, mv_dtype dtype, std::byte* out, const std::byte* a, size_t count);
void integer_axpy_run(mv_dtype dtype, std::byte* y, const std::byte* alpha, const std::byte* x, size_t count);
/// MV_POW for any of the six dtypes.
void power_run(mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count);
/// MV_EXP and MV_LOG for floats.
void elementary_run(int op, mv_dtype dtype, std::byte* out, const std::byte* a, size_t count);

}  // namespace mv::tensor
