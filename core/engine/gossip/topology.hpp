#pragma once
// Which peers a node fetches from, by its place among all of them. Pure functions of place, number and round.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mv::gossip {

enum class Topology {
  kRandom,       ///< anybody
  kRing,         ///< the one before and the one behind
  kExponential,  ///< one peer a round, 1, 2, 4, … places further on: the exact mean after log2 n rounds
  kHypercube,    ///< one peer a round, the place with one bit flipped: the same, in pairs
  kMatching,     ///< one peer a round, by pairs() of the common seed
  kTorus,        ///< the four neighbours in a rectangle as square as can be, whose edges meet
};
std::optional<Topology> parse_topology(std::string_view name);
std::string_view topology_name(Topology topology);
/// All names, for messages.
std::string topology_names();

/// Whether `count` nodes can stand in it. MV_EINVAL: a hypercube wants a power of two.
base::Status check_topology(Topology topology, size_t count);

/// Places from which node `self` of `count` may fetch in this round, without repeats and without itself. The first list that is not
/// exhausted counts: `first` is this round's, `rest` stands in for those of it that fail.
struct Neighbours {
  std::vector<size_t> first, rest;
};
Neighbours neighbours(Topology topology, size_t self, size_t count, uint64_t round, uint64_t seed = 0);

/// Who is paired with whom in a round, the same on every node that knows the seed. [i] is i's partner; with an odd
/// number one is left over, and is its own. Every pairing is as likely as any other.
std::vector<size_t> pairs(size_t count, uint64_t seed, uint64_t round);

}  // namespace mv::gossip
