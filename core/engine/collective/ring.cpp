// Ring algorithms: slices travel round the ring once to be reduced, and once more to reach all ranks.

#include "engine/collective/topology.hpp"

namespace mv::collective {
namespace {

/// In step s a rank sends slice rank - s - lag and receives the one before it, which it sends in step s + 1.
Schedule round_the_ring(int32_t rank, int32_t size, uint64_t count, int32_t lag, Step::Arrival arrival) {
  const auto at = [&](int32_t part) { return slice(count, static_cast<uint64_t>(size), static_cast<uint64_t>((part + 2 * size) % size)); };
  const int32_t next = (rank + 1) % size;
  const int32_t previous = (rank + size - 1) % size;
  Schedule schedule;
  for (int32_t s = 0; s < size - 1; ++s) {
    schedule.push_back(exchange_step(next, at(rank - s - lag), previous, at(rank - s - lag - 1), arrival));
  }
  return schedule;
}

}  // namespace

Schedule ring_reduce_scatter(int32_t rank, int32_t size, uint64_t count) {
  return round_the_ring(rank, size, count, 1, Step::Arrival::kReduce);
}

Schedule ring_allgather(int32_t rank, int32_t size, uint64_t count) {
  return round_the_ring(rank, size, count, 0, Step::Arrival::kCopy);
}

Schedule ring_allreduce(int32_t rank, int32_t size, uint64_t count) {
  Schedule schedule = ring_reduce_scatter(rank, size, count);
  append(schedule, ring_allgather(rank, size, count));
  return schedule;
}

}  // namespace mv::collective
