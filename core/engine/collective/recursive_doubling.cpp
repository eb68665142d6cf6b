// Recursive doubling: in round k, a rank exchanges the whole value with the rank whose number differs in bit k. Blocks
// of 2^k ranks with equal values become blocks of 2^(k + 1).

#include "engine/collective/fold.hpp"
#include "engine/collective/topology.hpp"

namespace mv::collective {

Schedule recursive_doubling_allreduce(int32_t rank, int32_t size, uint64_t count) {
  const Fold fold(size);
  const Range all{0, count};
  if (fold.stands_aside(rank)) {
    return {send_step(fold.partner(rank), all), receive_step(fold.partner(rank), all, Step::Arrival::kCopy)};
  }
  Schedule schedule;
  if (fold.in_pair(rank)) schedule.push_back(receive_step(fold.partner(rank), all, Step::Arrival::kReduce));
  for (int32_t bit = 1; bit < fold.ranks(); bit *= 2) {
    const int32_t peer = fold.rank(fold.number(rank) ^ bit);
    schedule.push_back(exchange_step(peer, all, peer, all, Step::Arrival::kReduce));
  }
  if (fold.in_pair(rank)) schedule.push_back(send_step(fold.partner(rank), all));
  return schedule;
}

}  // namespace mv::collective
