// Tree algorithms of any arity: a reduction flows up, a broadcast flows down. The levels work in parallel on different
// segments.

#include <algorithm>

#include "engine/collective/topology.hpp"

namespace mv::collective {
namespace {

/// A rank's neighbours in the tree, whose nodes are numbered level by level from the root.
struct Neighbours {
  int32_t parent = Step::kNone;
  std::vector<int32_t> children;
};

Neighbours neighbours(int32_t rank, int32_t size, const Tree& tree) {
  const auto from_root = static_cast<int64_t>((rank - tree.root + size) % size);
  const auto rank_of = [&](int64_t place) { return static_cast<int32_t>((place + tree.root) % size); };
  Neighbours found;
  if (from_root > 0) found.parent = rank_of((from_root - 1) / tree.arity);
  const int64_t first = from_root * tree.arity + 1;
  for (int64_t child = first; child < std::min<int64_t>(first + tree.arity, size); ++child) found.children.push_back(rank_of(child));
  return found;
}

std::vector<Range> segments(uint64_t count, uint64_t segment) {
  if (segment == 0 || segment >= count) return {{0, count}};
  std::vector<Range> ranges;
  for (uint64_t first = 0; first < count; first += segment) ranges.push_back({first, std::min(segment, count - first)});
  return ranges;
}

/// Step i receives segment i and sends segment i - 1 on. Both are one step if the rank does both.
void pass_on(Schedule& schedule, int32_t to, int32_t from, const std::vector<Range>& ranges, size_t i, Step::Arrival arrival) {
  Step step;
  if (i > 0 && to != Step::kNone) step = send_step(to, ranges[i - 1]);
  if (i < ranges.size() && from != Step::kNone) {
    step.from = from;
    step.receive = ranges[i];
    step.arrival = arrival;
  }
  if (step.to != Step::kNone || step.from != Step::kNone) schedule.push_back(step);
}

}  // namespace

Schedule tree_reduce(int32_t rank, int32_t size, uint64_t count, const Tree& tree) {
  const Neighbours near = neighbours(rank, size, tree);
  const std::vector<Range> ranges = segments(count, tree.segment);
  Schedule schedule;
  for (size_t i = 0; i <= ranges.size(); ++i) {
    pass_on(schedule, near.parent, near.children.empty() ? Step::kNone : near.children.front(), ranges, i, Step::Arrival::kReduce);
    if (i == ranges.size()) break;
    for (size_t child = 1; child < near.children.size(); ++child) {
      schedule.push_back(receive_step(near.children[child], ranges[i], Step::Arrival::kReduce));
    }
  }
  return schedule;
}

Schedule tree_broadcast(int32_t rank, int32_t size, uint64_t count, const Tree& tree) {
  const Neighbours near = neighbours(rank, size, tree);
  const std::vector<Range> ranges = segments(count, tree.segment);
  Schedule schedule;
  for (size_t i = 0; i <= ranges.size(); ++i) {
    pass_on(schedule, near.children.empty() ? Step::kNone : near.children.front(), near.parent, ranges, i, Step::Arrival::kCopy);
    if (i == 0) continue;
    for (size_t child = 1; child < near.children.size(); ++child) schedule.push_back(send_step(near.children[child], ranges[i - 1]));
  }
  return schedule;
}

Schedule tree_allreduce(int32_t rank, int32_t size, uint64_t count, const Tree& tree) {
  Schedule schedule = tree_reduce(rank, size, count, tree);
  append(schedule, tree_broadcast(rank, size, count, tree));
  return schedule;
}

}  // namespace mv::collective
