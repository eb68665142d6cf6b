#include "engine/collective/cost.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "engine/collective/fold.hpp"

namespace mv::collective {
namespace {

constexpr uint64_t kSegments[] = {0, 16 << 10, 64 << 10, 256 << 10, 1 << 20};

/// Levels below the root of a tree whose nodes are numbered level by level.
int levels(int64_t ranks, int64_t arity) {
  int count = 0;
  for (int64_t node = ranks - 1; node > 0; node = (node - 1) / arity) ++count;
  return count;
}

double segments_of(uint64_t bytes, uint64_t segment) {
  return segment == 0 || segment >= bytes ? 1 : std::ceil(static_cast<double>(bytes) / static_cast<double>(segment));
}

/// The time of a value that passes through the levels of a tree in segments. A node spends `per_byte` on each byte of a
/// segment, for each child.
double through_levels(uint64_t bytes, int32_t ranks, double alpha, double per_byte, const Tree& tree) {
  const double children = std::min<double>(tree.arity, ranks - 1);
  const double segments = segments_of(bytes, tree.segment);
  const double busy = children * per_byte * static_cast<double>(bytes) / segments;
  return levels(ranks, tree.arity) * (alpha + busy) + (segments - 1) * std::max(busy, alpha * (children - 1));
}

struct Ranks {
  int32_t hosts = 0;
  int32_t on_fullest = 0;
};

Ranks count_ranks(const Layout& layout) {
  const auto is_first = [&](int32_t host) { return host == layout.hosts.front(); };
  if (std::ranges::all_of(layout.hosts, is_first)) return {layout.hosts.empty() ? 0 : 1, static_cast<int32_t>(layout.hosts.size())};
  std::map<int32_t, int32_t> on_host;
  for (const int32_t host : layout.hosts) ++on_host[host];
  Ranks ranks{static_cast<int32_t>(on_host.size()), 0};
  for (const auto& [host, count] : on_host) ranks.on_fullest = std::max(ranks.on_fullest, count);
  return ranks;
}

constexpr Algorithm kAlgorithms[] = {Algorithm::kRecursiveDoubling, Algorithm::kRing, Algorithm::kRabenseifner, Algorithm::kTree};

}  // namespace

double cost_of_reduce(uint64_t bytes, int32_t ranks, const TransportCost& transport, double gamma, const Tree& tree) {
  return ranks < 2 ? 0 : through_levels(bytes, ranks, transport.alpha, transport.beta + gamma, tree);
}

double cost_of_broadcast(uint64_t bytes, int32_t ranks, const TransportCost& transport, const Tree& tree) {
  return ranks < 2 ? 0 : through_levels(bytes, ranks, transport.alpha, transport.beta, tree);
}

double cost_of(Algorithm algorithm, uint64_t bytes, int32_t ranks, const TransportCost& transport, double gamma, const Tree& tree) {
  if (ranks < 2) return 0;
  const auto all = static_cast<double>(bytes);
  const double n = ranks;
  const double share = (n - 1) / n;
  const Fold fold(ranks);
  const double rounds = std::bit_width(static_cast<uint32_t>(fold.ranks())) - 1;
  const double doubling_share = (fold.ranks() - 1.0) / fold.ranks();
  const bool folds = fold.ranks() != ranks;
  switch (algorithm) {
    case Algorithm::kTree:
      return cost_of_reduce(bytes, ranks, transport, gamma, tree) + cost_of_broadcast(bytes, ranks, transport, tree);
    case Algorithm::kRecursiveDoubling: {
      const double folding = folds ? 2 * transport.alpha + (2 * transport.beta + gamma) * all : 0;
      return rounds * (transport.alpha + (transport.beta + gamma) * all) + folding;
    }
    case Algorithm::kRing: return 2 * (n - 1) * transport.alpha + share * (2 * transport.beta + gamma) * all;
    case Algorithm::kRabenseifner: break;
  }
  const double folding = folds ? 3 * transport.alpha + (2 * transport.beta + gamma / 2) * all : 0;
  return 2 * rounds * transport.alpha + doubling_share * (2 * transport.beta + gamma) * all + folding;
}

Choice choose_allreduce(uint64_t bytes, const Layout& layout, const Costs& costs) {
  const auto ranks = static_cast<int32_t>(layout.hosts.size());
  const Ranks counted = count_ranks(layout);
  const bool one_host = counted.hosts <= 1;
  Choice best{.seconds = INFINITY};
  const auto consider = [&](Algorithm algorithm, bool by_host, bool is_split, double seconds) {
    if (seconds < best.seconds) best = {.algorithm = algorithm, .by_host = by_host, .is_split = is_split, .seconds = seconds};
  };
  for (const Algorithm algorithm : kAlgorithms) {
    TransportCost transport = costs.of(one_host ? layout.beside : layout.between);
    // In a ring, one rank of each host sends to another host at a time. In the other algorithms all ranks do, and share
    // the connection between the hosts.
    if (!one_host && algorithm != Algorithm::kRing) transport.beta *= counted.on_fullest;
    consider(algorithm, false, false, cost_of(algorithm, bytes, ranks, transport, costs.gamma));
  }
  if (one_host || counted.hosts == ranks) return best;
  const TransportCost& beside = costs.of(layout.beside);
  const double inside =
      cost_of_reduce(bytes, counted.on_fullest, beside, costs.gamma) + cost_of_broadcast(bytes, counted.on_fullest, beside);
  for (const Algorithm algorithm : kAlgorithms) {
    consider(algorithm, true, false, inside + cost_of(algorithm, bytes, counted.hosts, costs.of(layout.between), costs.gamma));
  }
  if (!are_even(layout.hosts)) return best;
  const double in_rings = cost_of(Algorithm::kRing, bytes, counted.on_fullest, beside, costs.gamma);
  TransportCost shared = costs.of(layout.between);
  shared.beta *= counted.on_fullest;
  const uint64_t share = (bytes + static_cast<uint64_t>(counted.on_fullest) - 1) / static_cast<uint64_t>(counted.on_fullest);
  for (const Algorithm algorithm : kAlgorithms) {
    consider(algorithm, true, true, in_rings + cost_of(algorithm, share, counted.hosts, shared, costs.gamma));
  }
  return best;
}

Tree choose_tree(uint64_t bytes, const Layout& layout, const Costs& costs) {
  const auto ranks = static_cast<int32_t>(layout.hosts.size());
  const TransportCost& transport = costs.of(count_ranks(layout).hosts <= 1 ? layout.beside : layout.between);
  Tree best;
  double least = INFINITY;
  for (const int32_t arity : {2, 1, 4, std::max(1, ranks - 1)})
    for (const uint64_t segment : kSegments) {
      const Tree tree{arity, 0, segment};
      const double seconds = cost_of_reduce(bytes, ranks, transport, costs.gamma, tree);
      if (seconds < least) {
        least = seconds;
        best = tree;
      }
    }
  return best;
}

}  // namespace mv::collective
