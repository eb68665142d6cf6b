#pragma once
// A schedule: one rank's part of a collective operation as data, with its sends and receives step by step. It does no
// I/O and holds no values. The engine executes it; the simulator and the tests execute it for hundreds of ranks.
//
// The contract between a schedule and its executor:
//  - The steps of a rank run in order. The send and the receive of one step may overlap in time. Where they share
//    elements, received elements are applied after the sent ones have left.
//  - The k-th step that sends to a peer matches the peer's k-th step that receives from this rank. Steps with empty
//    ranges count, too, so the pattern of communication depends on the ranks alone; the engine sends no messages for
//    them.
//  - kReduce is value = f(value of the lower rank, value of the higher rank). Both sides of an exchange use the same
//    order of operands, so their bits are equal even where f(a, b) and f(b, a) differ: for NaNs and the signs of zeros.

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

/// The part-th of `parts` slices of `count` elements. The first slices have one element more if `count` is not
/// divisible.
Range slice(uint64_t count, uint64_t parts, uint64_t part);
/// The slices [first, last) of `parts`, which are adjacent.
Range slices(uint64_t count, uint64_t parts, uint64_t first, uint64_t last);

inline Step exchange_step(int32_t to, Range send, int32_t from, Range receive, Step::Arrival arrival) {
  return {.to = to, .send = send, .from = from, .receive = receive, .arrival = arrival};
}
inline Step send_step(int32_t to, Range range) { return exchange_step(to, range, Step::kNone, {}, Step::Arrival::kReduce); }
inline Step receive_step(int32_t from, Range range, Step::Arrival arrival) { return exchange_step(Step::kNone, {}, from, range, arrival); }

/// Translates a schedule among the ranks of a list to ranks of the group: rank i is members[i]. The list is ascending,
/// which preserves the order of operands.
Schedule among(const std::vector<int32_t>& members, Schedule part);
void append(Schedule& schedule, const Schedule& more);

}  // namespace mv::collective
