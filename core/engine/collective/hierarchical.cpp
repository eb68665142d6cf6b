// Hierarchical all-reduce: ranks of one host reduce first, so data crosses the network once for each host.

#include <algorithm>
#include <set>

#include "engine/collective/topology.hpp"

namespace mv::collective {

Schedule allreduce(Algorithm algorithm, int32_t rank, int32_t size, uint64_t count, const Tree& tree) {
  switch (algorithm) {
    case Algorithm::kTree: return tree_allreduce(rank, size, count, tree);
    case Algorithm::kRecursiveDoubling: return recursive_doubling_allreduce(rank, size, count);
    case Algorithm::kRing: return ring_allreduce(rank, size, count);
    case Algorithm::kRabenseifner: break;
  }
  return rabenseifner_allreduce(rank, size, count);
}

Schedule hierarchical_allreduce(int32_t rank, const std::vector<int32_t>& hosts, uint64_t count, Algorithm across) {
  std::vector<int32_t> beside;   // the ranks of this rank's host
  std::vector<int32_t> leaders;  // the lowest rank of each host
  std::set<int32_t> seen;
  const auto size = static_cast<int32_t>(hosts.size());
  for (int32_t other = 0; other < size; ++other) {
    const auto host = hosts[static_cast<size_t>(other)];
    if (host == hosts[static_cast<size_t>(rank)]) beside.push_back(other);
    if (seen.insert(host).second) leaders.push_back(other);
  }
  const auto place = [](const std::vector<int32_t>& list, int32_t which) {
    return static_cast<int32_t>(std::lower_bound(list.begin(), list.end(), which) - list.begin());
  };
  const auto locals = static_cast<int32_t>(beside.size());
  const int32_t local = place(beside, rank);
  Schedule schedule = among(beside, tree_reduce(local, locals, count));
  if (local == 0) {
    const auto all = static_cast<int32_t>(leaders.size());
    append(schedule, among(leaders, allreduce(across, place(leaders, rank), all, count)));
  }
  append(schedule, among(beside, tree_broadcast(local, locals, count)));
  return schedule;
}

}  // namespace mv::collective
