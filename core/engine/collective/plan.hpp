#pragma once
// The plan of an operation: its schedule, its signature on the wire, and its description in words.

#include <memory>
#include <string>
#include <vector>

#include "engine/collective/cost.hpp"
#include "engine/collective/operation.hpp"
#include "engine/collective/topology.hpp"
#include "engine/collective/value.hpp"
#include "wire/frame.hpp"

namespace mv::collective {

/// The inputs of a group's choices. All except `rank` are the same on all ranks.
struct Setting {
  int32_t rank = 0, size = 1;
  Layout layout;
  Costs costs;
  /// All-reduces of at least so many bytes are handed over to the group's Reducer; UINT64_MAX: none.
  uint64_t hand_over_from = UINT64_MAX;
};

struct Plan {
  Schedule schedule;
  uint8_t algorithm = 0;  ///< identifies the choice: ranks with different choices disagree
};

/// Whether the group's Reducer reduces the operation. The same on all ranks whose signatures are the same.
bool is_handed_over(const Setting& setting, const Operation& operation);
/// The plan of such an operation: of its number of contributors.
Plan plan_handed_over(const Setting& setting);
/// The plan of an operation on which the ranks only agree: of its votes.
Plan plan_agreement(const Setting& setting);
/// `value` is that of the operation, as Running lays it out.
Plan plan(const Setting& setting, const Operation& operation, const Value& value);

/// Makes the plans of operations, and keeps the last one, because most programs repeat an operation.
class Planner {
 public:
  /// @param setting  must outlive the planner; after a change of it, call forget()
  explicit Planner(const Setting& setting) : setting_(setting) {}
  std::shared_ptr<const Plan> plan(const Operation& operation, const Value& value);
  void forget() { last_ = {}; }

 private:
  struct Key {
    Kind kind = Kind::kBarrier;
    uint64_t root = 0, count = 0, bytes = 0;
    bool operator==(const Key&) const = default;
  };
  const Setting& setting_;
  Key key_;
  std::shared_ptr<const Plan> last_;  ///< of `key_`, or null
};

wire::Signature sign(const Operation& operation, uint8_t algorithm);
bool same(const wire::Signature& a, const wire::Signature& b);
/// Whether draining ranks can take part in such an operation.
bool can_be_drained(const wire::Signature& signature);
/// "allreduce (sum) of 1000 f32".
std::string describe(const wire::Signature& signature);

}  // namespace mv::collective
