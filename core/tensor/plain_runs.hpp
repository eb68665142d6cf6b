#pragma once
// The kernels of arithmetic.hpp that are plain loops: integers, where no instruction set can differ, and functions that
// are computed one element at a time.

#include "tensor/arithmetic.hpp"

namespace mv::tensor {

void integer_binary_run(int op, mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count);
void integer_unary_run(int op, mv_dtype dtype, std::byte* out, const std::byte* a, size_t count);
void integer_axpy_run(mv_dtype dtype, std::byte* y, const std::byte* alpha, const std::byte* x, size_t count);
/// MV_POW of any of the five dtypes.
void power_run(mv_dtype dtype, std::byte* out, Operand a, Operand b, size_t count);
/// MV_EXP and MV_LOG of floats.
void elementary_run(int op, mv_dtype dtype, std::byte* out, const std::byte* a, size_t count);

}  // namespace mv::tensor
