#pragma once
// The small linear algebra of PowerSGD: products with few columns, and an orthonormal basis of their span.

#include <cstddef>

namespace mv::distlearn {

/// out (rows x rank) = m (rows x cols) * q (cols x rank), all row-major.
void multiply(const float* m, const float* q, float* out, size_t rows, size_t cols, size_t rank);
/// out (cols x rank) = m^T * p (rows x rank).
void multiply_transposed(const float* m, const float* p, float* out, size_t rows, size_t cols, size_t rank);
/// out (rows x cols) = p * q^T.
void expand(const float* p, const float* q, float* out, size_t rows, size_t cols, size_t rank);
/// Orthonormalizes the columns of p (rows x rank), from the first on. Columns in the span of earlier ones become zero.
void orthonormalize(float* p, size_t rows, size_t rank);

}  // namespace mv::distlearn
