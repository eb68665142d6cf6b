#pragma once
// The topologies: which peers a node fetches from, by its place among all nodes. Pure functions of place, count, round
// and seed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mv::gossip {

enum class Topology {
  kRandom,       ///< any peer
  kRing,         ///< the peers before and after it
  kExponential,  ///< one peer a round, 1, 2, 4, … places further on: the exact mean after log2 n rounds
  kHypercube,    ///< one peer a round, the place with one bit flipped: the same mean, in pairs
  kMatching,     ///< one peer a round, by pairs() of the common seed
  kTorus,        ///< the four neighbours in a rectangle, as square as possible, with wrap-around
};
std::optional<Topology> parse_topology(std::string_view name);
std::string_view topology_name(Topology topology);
/// All names, for messages.
std::string topology_names();

/// Whether `count` nodes fit the topology. MV_EINVAL: a hypercube needs a power of two.
base::Status check_topology(Topology topology, size_t count);

/// The places from which node `self` of `count` may fetch in this round, without repeats and without itself. `first`
/// are this round's peers; those in `rest` are asked once all of `first` have failed.
struct Neighbours {
  std::vector<size_t> first, rest;
};
Neighbours neighbours(Topology topology, size_t self, size_t count, uint64_t round, uint64_t seed = 0);

/// The pairs of a round, the same on every node with the same seed. Element i is the partner of i. With an odd count,
/// one node is left over and is its own partner. All pairings are equally likely.
std::vector<size_t> pairs(size_t count, uint64_t seed, uint64_t round);

}  // namespace mv::gossip
