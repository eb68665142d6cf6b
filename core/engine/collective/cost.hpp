#pragma once
// What an all-reduce costs, and so which algorithm to take. Latency alpha of a message, beta for each byte on a transport, gamma for each byte
// that is reduced; docs/allreduce.md has the table. All ranks of a group must choose alike: they go by what its lowest rank says when it is
// opened.

#include <array>
#include <cstdint>
#include <vector>

#include "base/traffic.hpp"
#include "engine/collective/topology.hpp"

namespace mv::collective {

/// Seconds: no alpha, beta or gamma is larger.
constexpr double kMostCost = 10;

struct TransportCost {
  double alpha = 0;  ///< seconds from a rank's sending a message to another's having begun with it
  double beta = 0;   ///< seconds a byte
  bool operator==(const TransportCost&) const = default;
};

/// The defaults are of two cores of a machine of 2021 and a network of 10 Gbit/s.
struct Costs {
  std::array<TransportCost, base::kTransportNames.size()> transports = {{{3e-6, 0.1e-9}, {5e-6, 0.25e-9}, {25e-6, 0.9e-9}}};  ///< by base::TransportKind
  double gamma = 0.1e-9;                                                                                       ///< seconds a byte

  const TransportCost& of(base::TransportKind transport) const { return transports[static_cast<size_t>(transport)]; }
  bool operator==(const Costs&) const = default;
};

/// Seconds. What folding costs where `ranks` is no power of two is in it.
double cost_of(Algorithm algorithm, uint64_t bytes, int32_t ranks, const TransportCost& transport, double gamma, const Tree& tree = {});
/// `tree.segment` in bytes.
double cost_of_reduce(uint64_t bytes, int32_t ranks, const TransportCost& transport, double gamma, const Tree& tree = {});
double cost_of_broadcast(uint64_t bytes, int32_t ranks, const TransportCost& transport, const Tree& tree = {});

/// Where the ranks of a group are, and by which transports they reach each other.
struct Layout {
  std::vector<int32_t> hosts;  ///< of each rank, as hierarchical_allreduce() has them
  base::TransportKind beside = base::TransportKind::kShm;
  base::TransportKind between = base::TransportKind::kTcp;
};

/// What a rank would choose by. The setting collective_costs has the costs, see cost_text.hpp.
struct Basis {
  Costs costs;
  base::TransportKind beside = base::TransportKind::kShm;  ///< the transport between ranks of one host
  bool operator==(const Basis&) const = default;
};

struct Choice {
  Algorithm algorithm = Algorithm::kRecursiveDoubling;
  bool by_host = false;  ///< hierarchical_allreduce(), with `algorithm` between the hosts
  double seconds = 0;    ///< that it should take
};

/// The cheapest way to all-reduce `bytes`. The same for the same arguments, everywhere.
Choice choose_allreduce(uint64_t bytes, const Layout& layout, const Costs& costs);
/// The best arity and segment (in bytes, a multiple of 64) for a reduction to one rank, or for a broadcast from it.
Tree choose_tree(uint64_t bytes, const Layout& layout, const Costs& costs);

}  // namespace mv::collective
