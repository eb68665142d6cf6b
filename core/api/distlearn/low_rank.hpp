#pragma once
// The small linear algebra of PowerSGD: products with few columns, and a basis of what they span.

#include <cstddef>

namespace mv::distlearn {

/// out (rows x rank) = m (rows x cols) * q (cols x rank), all row by row.
void multiply(const float* m, const float* q, float* out, size_t rows, size_t cols, size_t rank);
/// out (cols x rank) = m^T * p (rows x rank).
void multiply_transposed(const float* m, const float* p, float* out, size_t rows, size_t cols, size_t rank);
/// out (rows x cols) = p * q^T.
void expand(const float* p, const float* q, float* out, size_t rows, size_t cols, size_t rank);
/// The columns of p (rows x rank) become orthonormal, from the first on; those that lie in what the earlier ones span become zero.
void orthonormalize(float* p, size_t rows, size_t rank);

}  // namespace mv::distlearn
