#include "api/distlearn/low_rank.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace mv::distlearn {

void multiply(const float* m, const float* q, float* out, size_t rows, size_t cols, size_t rank) {
  std::fill_n(out, rows * rank, 0.0F);
  for (size_t row = 0; row < rows; ++row)
    for (size_t col = 0; col < cols; ++col)
      for (size_t k = 0; k < rank; ++k) out[row * rank + k] += m[row * cols + col] * q[col * rank + k];
}

void multiply_transposed(const float* m, const float* p, float* out, size_t rows, size_t cols, size_t rank) {
  std::fill_n(out, cols * rank, 0.0F);
  for (size_t row = 0; row < rows; ++row)
    for (size_t col = 0; col < cols; ++col)
      for (size_t k = 0; k < rank; ++k) out[col * rank + k] += m[row * cols + col] * p[row * rank + k];
}

void expand(const float* p, const float* q, float* out, size_t rows, size_t cols, size_t rank) {
  std::fill_n(out, rows * cols, 0.0F);
  for (size_t row = 0; row < rows; ++row)
    for (size_t col = 0; col < cols; ++col)
      for (size_t k = 0; k < rank; ++k) out[row * cols + col] += p[row * rank + k] * q[col * rank + k];
}

void orthonormalize(float* p, size_t rows, size_t rank) {
  const auto dot = [&](size_t a, size_t b) {
    double sum = 0;
    for (size_t row = 0; row < rows; ++row) sum += static_cast<double>(p[row * rank + a]) * static_cast<double>(p[row * rank + b]);
    return sum;
  };
  for (size_t k = 0; k < rank; ++k) {
    const double before = std::sqrt(dot(k, k));
    for (int pass = 0; pass < 2; ++pass)  // the second pass removes what rounding has left of the other columns
      for (size_t other = 0; other < k; ++other) {
        const double along = dot(k, other);
        for (size_t row = 0; row < rows; ++row) p[row * rank + k] -= static_cast<float>(along) * p[row * rank + other];
      }
    const double after = std::sqrt(dot(k, k));
    const bool is_new = std::isfinite(after) && after > 1e-5 * before && after > 0;
    for (size_t row = 0; row < rows; ++row) p[row * rank + k] = is_new ? static_cast<float>(p[row * rank + k] / after) : 0.0F;
  }
}

}  // namespace mv::distlearn
