// Hierarchical all-reduces: ranks of one host reduce first, so data crosses the network once for each host.

#include <algorithm>
#include <map>
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

bool are_even(const std::vector<int32_t>& hosts) {
  std::map<int32_t, int32_t> on_host;
  for (const int32_t host : hosts) ++on_host[host];
  return std::all_of(on_host.begin(), on_host.end(), [&](const auto& each) { return each.second == on_host.begin()->second; });
}

Schedule split_allreduce(int32_t rank, const std::vector<int32_t>& hosts, uint64_t count, Algorithm across) {
  const auto size = static_cast<int32_t>(hosts.size());
  std::map<int32_t, std::vector<int32_t>> on_host;
  for (int32_t other = 0; other < size; ++other) on_host[hosts[static_cast<size_t>(other)]].push_back(other);
  const std::vector<int32_t>& beside = on_host[hosts[static_cast<size_t>(rank)]];
  const auto place = [](const std::vector<int32_t>& list, int32_t which) {
    return static_cast<int32_t>(std::lower_bound(list.begin(), list.end(), which) - list.begin());
  };
  const int32_t local = place(beside, rank);
  std::vector<int32_t> alike;  // the ranks with this place on their hosts
  for (const auto& [host, ranks] : on_host) alike.push_back(ranks[static_cast<size_t>(local)]);
  std::sort(alike.begin(), alike.end());
  const auto locals = static_cast<int32_t>(beside.size());
  const Range share = slice(count, static_cast<uint64_t>(locals), static_cast<uint64_t>(local));
  Schedule between = allreduce(across, place(alike, rank), static_cast<int32_t>(alike.size()), share.count);
  for (Step& step : between) {
    step.send.first += share.first;
    step.receive.first += share.first;
  }
  Schedule schedule = among(beside, ring_reduce_scatter(local, locals, count));
  append(schedule, among(alike, std::move(between)));
  append(schedule, among(beside, ring_allgather(local, locals, count)));
  return schedule;
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
