#pragma once
// Summation in double precision with an error that hardly grows with the number of terms.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace mv::tensor {

/// term(0) + ... + term(count - 1), in 16 parallel sums, which are then added pairwise.
template <typename Term>
double sum_of_chunk(size_t count, Term term) {
  constexpr size_t kSums = 16;
  double sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (size_t k = 0; k < kSums; ++k) sums[k] += term(i + k);
  for (size_t k = 0; i + k < count; ++k) sums[k] += term(i + k);
  for (size_t half = kSums / 2; half > 0; half /= 2)
    for (size_t k = 0; k < half; ++k) sums[k] += sums[k + half];
  return sums[0];
}

/// Pairwise summation of a stream: a sum of 2^k terms is only added to another sum of 2^k terms.
class PairwiseSum {
 public:
  void add(double term) {
    size_t level = 0;
    for (uint64_t full = terms_++; (full & 1) != 0; full >>= 1) term = sums_[level++] + term;
    sums_[level] = term;
  }
  double total() const {
    double total = 0;
    for (size_t level = 0; terms_ >> level != 0; ++level)
      if ((terms_ >> level & 1) != 0) total = sums_[level] + total;
    return total;
  }

 private:
  std::array<double, 64> sums_;
  uint64_t terms_ = 0;
};

/// Column sums of a matrix that is read row by row.
template <size_t kColumns>
class ColumnSums {
 public:
  explicit ColumnSums(size_t columns) : columns_(columns) {
    std::fill_n(sums_, columns, 0.0);
    std::fill_n(lost_, columns, 0.0);
  }
  /// For terms with fewer digits than the sums.
  void add(const double* terms) {
    for (size_t i = 0; i < columns_; ++i) sums_[i] += terms[i];
  }
  /// Accumulates the rounding errors, too (Knuth's two-sum).
  void add_exactly(const double* terms) {
    for (size_t i = 0; i < columns_; ++i) {
      const double next = sums_[i] + terms[i], part = next - sums_[i];
      lost_[i] += (sums_[i] - (next - part)) + (terms[i] - part);
      sums_[i] = next;
    }
  }
  double total(size_t column) const {
    return std::isfinite(lost_[column]) ? sums_[column] + lost_[column] : sums_[column];
  }

 private:
  const size_t columns_;
  double sums_[kColumns], lost_[kColumns];
};

}  // namespace mv::tensor
