#pragma once
// From an operation to the schedule that carries it out, and to the words that name it.

#include <string>
#include <vector>

#include "engine/collective/cost.hpp"
#include "engine/collective/operation.hpp"
#include "engine/collective/topology.hpp"
#include "engine/collective/value.hpp"
#include "wire/frame.hpp"

namespace mv::collective {

/// What a group's choices depend on, the same on all of its ranks.
struct Setting {
  int32_t rank = 0, size = 1;
  Layout layout;
  Costs costs;
};

struct Plan {
  Schedule schedule;
  uint8_t algorithm = 0;  ///< a number for it: ranks that chose otherwise disagree
};

/// For a value of the operation, as Running lays it out.
Plan plan(const Setting& setting, const Operation& operation, const Value& value);

wire::Signature sign(const Operation& operation, uint8_t algorithm);
bool same(const wire::Signature& a, const wire::Signature& b);
/// Of these kinds draining ranks take part in.
bool can_be_drained(const wire::Signature& signature);
/// "allreduce (sum) of 1000 f32".
std::string describe(const wire::Signature& signature);

}  // namespace mv::collective
