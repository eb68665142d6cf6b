#pragma once
// One operation of this rank, from its beginning to its end.

#include <functional>
#include <memory>
#include <vector>

#include "base/operation.hpp"
#include "engine/collective/execution.hpp"
#include "engine/collective/plan.hpp"

namespace mv::collective {

/// Hears of the values of a custom reduction that are to be reduced next.
using Handed = std::function<void(const std::vector<Array>&)>;

/// An operation's values and its execution. Besides the caller's arrays the value holds one element of its own, the number of ranks that
/// contribute, so that every rank learns it by the same way as the result. Loop thread only.
class Running {
 public:
  Running(Execution::Owner& owner, const Setting& setting, Operation operation, base::OperationRef call, Handed handed);

  Execution& execution() { return *execution_; }
  const Operation& operation() const { return operation_; }
  const wire::Signature& signature() const { return signature_; }
  /// The caller's.
  const base::OperationRef& call() const { return call_; }
  /// Writes what is left to be written: averages, own parts, the number of contributors.
  void finish();
  /// By hand: tells the caller of values to be reduced, once.
  void hand();
  /// It has reduced them.
  void resume();

  base::Nanos deadline;
  bool asked = false;              ///< the deadline has passed, the others were asked whether they have begun it
  base::Nanos look_at;             ///< when to see whether anything moved
  uint64_t moves_seen = 0;
  bool told = false;               ///< the rank that is waited for knows of it

 private:
  Value lay_out();
  std::vector<Array> scratch_for(const std::vector<Array>& arrays);
  bool counts() const;

  const Setting& setting_;
  Operation operation_;
  const base::OperationRef call_;
  const Handed handed_;
  bool told_of_hand_ = false;
  int64_t contributors_ = 1, theirs_ = 0;
  std::vector<std::byte> scratch_;
  std::vector<Array> theirs_arrays_;
  wire::Signature signature_;
  std::unique_ptr<Execution> execution_;
};

}  // namespace mv::collective
