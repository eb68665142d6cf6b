#pragma once
// The cost model of collective operations, and the choice of an algorithm by it. A message costs alpha, each byte on a
// transport beta, and each reduced byte gamma; docs/allreduce.md has the table. All ranks of a group must choose the
// same algorithm, so they use the costs that the lowest rank sends when the group is opened.

#include <array>
#include <cstdint>
#include <vector>

#include "base/traffic.hpp"
#include "engine/collective/topology.hpp"

namespace mv::collective {

/// Seconds. The upper limit of alpha, beta and gamma.
constexpr double kMostCost = 10;

struct TransportCost {
  double alpha = 0;  ///< seconds from the send of a message until its receiver begins with it
  double beta = 0;   ///< seconds a byte
  bool operator==(const TransportCost&) const = default;
};

/// The defaults describe two cores of a machine of 2021 and a network of 10 Gbit/s.
struct Costs {
  std::array<TransportCost, base::kTransportNames.size()> transports = {{{3e-6, 0.1e-9}, {5e-6, 0.25e-9}, {12e-6, 0.9e-9}, {12e-6, 0.9e-9}, {12e-6, 0.9e-9}}};  ///< by base::TransportKind
  double gamma = 0.1e-9;                                                                                       ///< seconds a byte

  const TransportCost& of(base::TransportKind transport) const { return transports[static_cast<size_t>(transport)]; }
  bool operator==(const Costs&) const = default;
};

/// In seconds. Includes the cost of folding if `ranks` is not a power of two.
double cost_of(Algorithm algorithm, uint64_t bytes, int32_t ranks, const TransportCost& transport, double gamma, const Tree& tree = {});
/// `tree.segment` is in bytes.
double cost_of_reduce(uint64_t bytes, int32_t ranks, const TransportCost& transport, double gamma, const Tree& tree = {});
double cost_of_broadcast(uint64_t bytes, int32_t ranks, const TransportCost& transport, const Tree& tree = {});

/// The hosts of a group's ranks, and the transports between the ranks.
struct Layout {
  std::vector<int32_t> hosts;  ///< by rank, see hierarchical_allreduce() and split_allreduce()
  base::TransportKind beside = base::TransportKind::kShm;
  base::TransportKind between = base::TransportKind::kTcp;
};

/// The costs by which a rank chooses algorithms. The setting collective_costs provides them, see cost_text.hpp.
struct Basis {
  Costs costs;
  base::TransportKind beside = base::TransportKind::kShm;  ///< the transport between ranks of one host
  bool operator==(const Basis&) const = default;
};

struct Choice {
  Algorithm algorithm = Algorithm::kRecursiveDoubling;
  bool by_host = false;  ///< hierarchical_allreduce(), with `algorithm` between the hosts
  bool is_split = false;  ///< by_host: by split_allreduce() instead
  double seconds = 0;    ///< predicted
};

/// The cheapest way to all-reduce `bytes`. Deterministic: equal arguments give equal choices on all ranks.
Choice choose_allreduce(uint64_t bytes, const Layout& layout, const Costs& costs);
/// The best arity and segment (in bytes, a multiple of 64) for a reduction to one rank, or for a broadcast from it.
Tree choose_tree(uint64_t bytes, const Layout& layout, const Costs& costs);

}  // namespace mv::collective
