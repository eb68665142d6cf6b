#pragma once
// Joint iteration over operands of several shapes.

#include <array>
#include <cstddef>

#include "tensor/shape.hpp"

namespace mv::tensor {

/// Splits the elements of `whole` into runs, as long as possible, in which each operand is contiguous or a single
/// element. Each of the kOperands shapes broadcasts to `whole`.
template <size_t kOperands>
class Walk {
 public:
  Walk(const Shape& whole, const std::array<const Shape*, kOperands>& operands) {
    std::array<std::array<size_t, kOperands>, MV_MAX_DIMS> strides{};
    find_strides(whole, operands, &strides);
    join_dimensions(strides);
  }

  size_t run() const { return run_; }
  bool is_single(size_t operand) const { return is_single_[operand]; }

  /// Calls visit(first element of the whole, {first elements of the operands}) for each run.
  template <typename Visit>
  void each(Visit visit) const {
    std::array<size_t, MV_MAX_DIMS> at{};
    std::array<size_t, kOperands> offsets{};
    for (size_t n = 0; n < runs_; ++n) {
      visit(n * run_, offsets);
      for (size_t d = outer_; d-- > 0;) {
        if (++at[d] < lengths_[d]) {
          for (size_t k = 0; k < kOperands; ++k) offsets[k] += strides_[d][k];
          break;
        }
        for (size_t k = 0; k < kOperands; ++k) offsets[k] -= strides_[d][k] * (lengths_[d] - 1);
        at[d] = 0;
      }
    }
  }

 private:
  using Strides = std::array<std::array<size_t, kOperands>, MV_MAX_DIMS>;

  /// Finds the lengths of the whole, except those of 1, and the stride of each operand along them.
  void find_strides(const Shape& whole, const std::array<const Shape*, kOperands>& operands, Strides* strides) {
    Strides reversed{};
    std::array<size_t, MV_MAX_DIMS> lengths{};
    std::array<size_t, kOperands> step;
    step.fill(1);
    for (uint32_t i = 1; i <= whole.dims; ++i) {
      const auto length = static_cast<size_t>(whole.lengths[whole.dims - i]);
      if (length == 1) continue;
      lengths[outer_] = length;
      for (size_t k = 0; k < kOperands; ++k) {
        const Shape& shape = *operands[k];
        const auto own = i <= shape.dims ? static_cast<size_t>(shape.lengths[shape.dims - i]) : 1;
        reversed[outer_][k] = own == 1 ? 0 : step[k];
        step[k] *= own;
      }
      ++outer_;
    }
    for (size_t d = 0; d < outer_; ++d) {
      lengths_[d] = lengths[outer_ - 1 - d];
      (*strides)[d] = reversed[outer_ - 1 - d];
    }
  }

  /// Joins the last dimensions, as many as possible, into one run.
  void join_dimensions(const Strides& strides) {
    strides_ = strides;
    const size_t all = outer_;
    while (outer_ > 0) {
      const auto& own = strides[outer_ - 1];
      bool joins = true;
      for (size_t k = 0; k < kOperands; ++k) {
        if (outer_ == all) is_single_[k] = own[k] == 0;
        joins = joins && own[k] == (is_single_[k] ? 0 : run_);
      }
      if (!joins) break;
      run_ *= lengths_[--outer_];
    }
    runs_ = run_ == 0 ? 0 : 1;
    for (size_t d = 0; d < outer_; ++d) runs_ *= lengths_[d];
  }

  std::array<size_t, MV_MAX_DIMS> lengths_{};
  Strides strides_{};
  std::array<bool, kOperands> is_single_{};
  size_t outer_ = 0, run_ = 1, runs_ = 1;
};

}  // namespace mv::tensor
