#pragma once
// A rank's part of a collective operation, as data: what it sends to whom and what it receives from whom, step by step. Pure, with no
// I/O and no memory of its own; the engine carries it out, the simulator and the tests work it through for hundreds of ranks.
//
// The rules between a schedule and whoever carries it out:
//  - The steps of a rank run in order. The send and the receive of one step may overlap in time; where they share elements, the received
//    ones are applied once the sent ones have left.
//  - The k-th message from a peer belongs to the k-th step that receives from that peer. Empty ranges travel, too: who takes part
//    with whom depends on the ranks alone.
//  - kReduce is value = f(value of the lower rank, value of the higher rank). An order of operands that both sides of an exchange share
//    makes their bits equal even where f(a, b) and f(b, a) differ: NaNs, and the signs of zeros.

#include <cstdint>
#include <vector>

namespace mv::collective {

/// Elements of the (concatenated) value.
struct Range {
  uint64_t first = 0;
  uint64_t count = 0;
  bool operator==(const Range&) const = default;
};

struct Step {
  static constexpr int32_t kNone = -1;
  enum class Arrival : uint8_t { kReduce, kCopy };
  int32_t to = kNone;
  Range send;
  int32_t from = kNone;
  Range receive;
  Arrival arrival = Arrival::kReduce;
};

using Schedule = std::vector<Step>;

/// The part-th of `parts` slices of `count` elements: the first ones have one element more where it doesn't divide evenly.
Range slice(uint64_t count, uint64_t parts, uint64_t part);
/// The slices [first, last) of `parts`, which lie side by side.
Range slices(uint64_t count, uint64_t parts, uint64_t first, uint64_t last);

inline Step exchange_step(int32_t to, Range send, int32_t from, Range receive, Step::Arrival arrival) {
  return {.to = to, .send = send, .from = from, .receive = receive, .arrival = arrival};
}
inline Step send_step(int32_t to, Range range) { return exchange_step(to, range, Step::kNone, {}, Step::Arrival::kReduce); }
inline Step receive_step(int32_t from, Range range, Step::Arrival arrival) { return exchange_step(Step::kNone, {}, from, range, arrival); }

/// `part`, a schedule among the ranks of a list, as one among all: its rank i is members[i]. The list ascends, so that the order of
/// operands stays what it was.
Schedule among(const std::vector<int32_t>& members, Schedule part);
void append(Schedule& schedule, const Schedule& more);

}  // namespace mv::collective
