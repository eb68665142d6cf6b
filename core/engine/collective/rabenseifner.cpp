// Rabenseifner's algorithm: recursive halving leaves each rank with a slice of the result, and recursive doubling sends
// the slices to all. In a folded pair, each rank first reduces one half of the value.

#include "engine/collective/fold.hpp"
#include "engine/collective/topology.hpp"

namespace mv::collective {
namespace {

/// The blocks of slices that contain a given number while they are halved and doubled.
class Halving {
 public:
  Halving(int32_t number, int32_t ranks, uint64_t count)
      : number_(static_cast<uint64_t>(number)), ranks_(static_cast<uint64_t>(ranks)), count_(count) {}

  uint64_t peer(uint64_t bit) const { return number_ ^ bit; }
  /// The block of `width` slices that contains a number.
  Range block(uint64_t number, uint64_t width) const {
    const uint64_t first = number / width * width;
    return slices(count_, ranks_, first, first + width);
  }
  Range mine(uint64_t width) const { return block(number_, width); }

 private:
  uint64_t number_, ranks_, count_;
};

void halve_and_double(Schedule& schedule, int32_t rank, const Fold& fold, uint64_t count) {
  const Halving halving(fold.number(rank), fold.ranks(), count);
  const auto ranks = static_cast<uint64_t>(fold.ranks());
  for (uint64_t bit = ranks / 2; bit > 0; bit /= 2) {
    const uint64_t peer = halving.peer(bit);
    const int32_t to = fold.rank(static_cast<int32_t>(peer));
    schedule.push_back(exchange_step(to, halving.block(peer, bit), to, halving.mine(bit), Step::Arrival::kReduce));
  }
  for (uint64_t bit = 1; bit < ranks; bit *= 2) {
    const uint64_t peer = halving.peer(bit);
    const int32_t to = fold.rank(static_cast<int32_t>(peer));
    schedule.push_back(exchange_step(to, halving.mine(bit), to, halving.block(peer, bit), Step::Arrival::kCopy));
  }
}

}  // namespace

Schedule rabenseifner_allreduce(int32_t rank, int32_t size, uint64_t count) {
  const Fold fold(size);
  const Range all{0, count};
  const Range lower = slice(count, 2, 0);
  const Range upper = slice(count, 2, 1);
  const int32_t partner = fold.partner(rank);
  if (fold.stands_aside(rank)) {
    return {exchange_step(partner, upper, partner, lower, Step::Arrival::kReduce), send_step(partner, lower),
            receive_step(partner, all, Step::Arrival::kCopy)};
  }
  Schedule schedule;
  if (fold.in_pair(rank)) {
    schedule.push_back(exchange_step(partner, lower, partner, upper, Step::Arrival::kReduce));
    schedule.push_back(receive_step(partner, lower, Step::Arrival::kCopy));
  }
  halve_and_double(schedule, rank, fold, count);
  if (fold.in_pair(rank)) schedule.push_back(send_step(partner, all));
  return schedule;
}

}  // namespace mv::collective
