#include "engine/collective/schedule.hpp"

#include <algorithm>

namespace mv::collective {

Range slices(uint64_t count, uint64_t parts, uint64_t first, uint64_t last) {
  const uint64_t each = count / parts;
  const uint64_t longer = count % parts;
  const auto begin = [&](uint64_t part) { return part * each + std::min(part, longer); };
  return {begin(first), begin(last) - begin(first)};
}

Range slice(uint64_t count, uint64_t parts, uint64_t part) { return slices(count, parts, part, part + 1); }

Schedule among(const std::vector<int32_t>& members, Schedule part) {
  const auto rank_of = [&](int32_t rank) { return rank == Step::kNone ? rank : members[static_cast<size_t>(rank)]; };
  for (Step& step : part) {
    step.to = rank_of(step.to);
    step.from = rank_of(step.from);
  }
  return part;
}

void append(Schedule& schedule, const Schedule& more) { schedule.insert(schedule.end(), more.begin(), more.end()); }

}  // namespace mv::collective
