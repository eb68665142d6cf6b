#pragma once
// The all-reduce of a communication library, such as MPI's own, for a group whose ranks are all processes of one job.
//
// Before the ranks hand an operation over to it, they all-reduce the number of contributors by messages, as for any other
// operation. So differences between their calls, draining ranks and lost ranks are noticed as always, and the library
// gets only operations that all ranks have begun.

#include <functional>
#include <string>

#include "base/result.hpp"
#include "engine/collective/operation.hpp"

namespace mv::collective {

/// Loop thread only.
class Reducer {
 public:
  using Done = std::function<void(const base::Status&)>;
  /// Abandons what is under way: its memory is not used any more, and its `done` is not called.
  virtual ~Reducer() = default;
  /// Reduces the values of a kAllreduce; an average only as the sum. All ranks make the same calls in the same order. The
  /// memory is lent until `done`, which is not called before this returns.
  virtual void reduce(const Operation& operation, Done done) = 0;
  /// "Open MPI 4.1.4"
  virtual const std::string& name() const = 0;
};

/// Whether a library reduces the operation with equal bits on all ranks, and by our rules. Halves it does not know. With
/// NaN or -0, the minimum of floats depends on the order of the operands.
inline bool can_be_handed_over(const Operation& operation) {
  if (operation.kind != Kind::kAllreduce) return false;
  const bool orders = operation.reduction == math::Reduction::kMin || operation.reduction == math::Reduction::kMax;
  for (const Array& array : operation.out) {
    if (array.dtype == MV_F16 || array.dtype == MV_BF16 || array.dtype == MV_RAW) return false;
    if (orders && tensor::is_floating(array.dtype)) return false;
  }
  return true;
}

}  // namespace mv::collective
