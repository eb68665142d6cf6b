// Algorithms without reduction, in which each element travels once, from its owner to its receiver.

#include "engine/collective/topology.hpp"

namespace mv::collective {

Schedule star_gather(int32_t rank, int32_t size, uint64_t each, int32_t root) {
  const auto part = [&](int32_t of) { return Range{static_cast<uint64_t>(of) * each, each}; };
  if (rank != root) return {send_step(root, part(rank))};
  Schedule schedule;
  for (int32_t s = 1; s < size; ++s) schedule.push_back(receive_step((root + s) % size, part((root + s) % size), Step::Arrival::kCopy));
  return schedule;
}

Schedule star_scatter(int32_t rank, int32_t size, uint64_t each, int32_t root) {
  const auto part = [&](int32_t of) { return Range{static_cast<uint64_t>(of) * each, each}; };
  if (rank != root) return {receive_step(root, part(rank), Step::Arrival::kCopy)};
  Schedule schedule;
  for (int32_t s = 1; s < size; ++s) schedule.push_back(send_step((root + s) % size, part((root + s) % size)));
  return schedule;
}

Schedule pairwise_alltoall(int32_t rank, int32_t size, const std::vector<uint64_t>& sends, const std::vector<uint64_t>& receives) {
  Schedule schedule;
  for (int32_t s = 1; s < size; ++s) {
    const int32_t to = (rank + s) % size, from = (rank + size - s) % size;
    schedule.push_back(exchange_step(to, {first_of_pair(rank, to, size), sends[static_cast<size_t>(to)]}, from,
                                     {first_of_pair(from, rank, size), receives[static_cast<size_t>(from)]}, Step::Arrival::kCopy));
  }
  return schedule;
}

Schedule ring_allgather_of_pairs(int32_t rank, int32_t size, uint64_t each) {
  const auto of = [&](int32_t owner) { return Range{first_of_pair((owner + size) % size, (owner + size) % size, size), each}; };
  Schedule schedule;
  for (int32_t s = 0; s < size - 1; ++s)
    schedule.push_back(exchange_step((rank + 1) % size, of(rank - s), (rank + size - 1) % size, of(rank - s - 1), Step::Arrival::kCopy));
  return schedule;
}

}  // namespace mv::collective
