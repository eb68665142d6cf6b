#pragma once
// A running operation of this rank, from its beginning to its end.

#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "base/operation.hpp"
#include "engine/collective/execution.hpp"
#include "engine/collective/plan.hpp"

namespace mv::collective {

/// Called with the values of a custom reduction that the caller must reduce next.
using Handed = std::function<void(const std::vector<Array>&)>;

/// An operation's values and its execution. The value has one element more than the caller's arrays, the number of
/// contributors, so every rank receives it together with the result. Loop thread only.
class Running {
 public:
  Running(Execution::Owner& owner, const Setting& setting, Planner& planner, Operation&& operation, base::OperationRef call, Handed handed);

  Execution& execution() { return *execution_; }
  const Operation& operation() const { return operation_; }
  const wire::Signature& signature() const { return signature_; }
  /// The call that this operation completes.
  const base::OperationRef& call() const { return call_; }
  /// Whether the group's Reducer reduces the values. The execution is then that of the number of contributors.
  bool is_handed_over() const { return is_handed_over_; }
  /// Writes the remaining results: averages, this rank's part, the number of contributors.
  void finish();
  /// kAlltoallCounts: once the counts of all ranks are here, checks that each rank sends what the other one receives.
  /// MV_EDISAGREE is the same on all ranks.
  base::Status check_counts();
  /// For custom reductions: passes values to the caller to reduce, each only once.
  void hand();
  /// The caller has reduced them.
  void resume();

  base::Nanos deadline;
  bool asked = false;              ///< the deadline has passed, and the other ranks were asked whether they have begun
  std::set<uint32_t> unanswered;   ///< those that have not answered
  base::Nanos look_at;             ///< when to check for progress
  uint64_t moves_seen = 0;
  int32_t told = Step::kNone;      ///< the awaited rank that was notified last

 private:
  Value lay_out();
  Value lay_out_contributors();  ///< and votes, if the ranks only agree on the operation
  Value lay_out_parts();
  Value lay_out_pairs();
  std::vector<Array> scratch_for(const std::vector<Array>& arrays);
  bool counts() const;

  const Setting& setting_;
  Operation operation_;
  const base::OperationRef call_;
  const Handed handed_;
  const bool is_handed_over_;
  bool told_of_hand_ = false;
  int64_t contributors_ = 1, theirs_ = 0;
  std::vector<std::byte> scratch_;
  std::vector<Array> theirs_arrays_;
  std::vector<uint64_t> counts_;  ///< kAlltoallCounts: for each rank, the counts that it sends to each rank, and then those that it receives
  wire::Signature signature_;
  std::optional<Execution> execution_;
};

}  // namespace mv::collective
