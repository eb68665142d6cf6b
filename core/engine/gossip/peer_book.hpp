#pragma once
// The peers of a node: their addresses, how well they answer, and the choice of the next one to ask.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/link.hpp"
#include "engine/gossip/config.hpp"
#include "engine/gossip/scores.hpp"
#include "engine/gossip/topology.hpp"

namespace mv::gossip {

struct PeerEntry {
  Node node;
  Score score;
  base::Peer life = base::kNobody;       ///< while it is connected
  base::Peer last_life = base::kNobody;  ///< the newest that was connected
  bool dialing = false;
  bool doubted = false;                  ///< it was silent: a new incarnation may have replaced it unnoticed
  uint64_t fetched = 0, failed = 0;
  double clock = 0, loss = 0;            ///< of the version fetched last
  double disagreement = 0;               ///< root mean square of its model minus this node's, at their last average
  std::string problem;                   ///< the last one; empty after a success
  base::Peer told_of = base::kNobody;    ///< the incarnation whose refusal was logged
  bool told_of_way = false;              ///< it was logged that connecting to it fails
};

class PeerBook {
 public:
  /// `seed` must be the same on all nodes.
  PeerBook(Node self, Topology topology, uint64_t seed) : self_(std::move(self)), topology_(topology), seed_(seed) {}

  const Node& self() const { return self_; }
  /// MV_EINVAL for an invalid node, MV_EDISAGREE for a name or address that is already known.
  base::Status add(const Node& node);
  /// MV_ENOTFOUND.
  base::Result<PeerEntry> remove(const std::string& name);

  PeerEntry* find(const std::string& name);
  PeerEntry* at_address(const std::string& address);
  PeerEntry* of_life(base::Peer life);
  const std::map<std::string, PeerEntry>& all() const { return peers_; }

  /// Notes a connection to this address. A new incarnation begins with a full score. Null if no peer has the address.
  PeerEntry* connected(base::Peer life, const std::string& address, base::Nanos now);

  /// The peer to ask in this round, except for those in `tried`, by topology, score and chance. Null if none is left.
  PeerEntry* choose_next(uint64_t round, const std::set<std::string>& tried, base::Nanos now, Rng& rng);
  /// Whether a peer that is not in `tried` is left to ask in this round.
  bool has_next(uint64_t round, const std::set<std::string>& tried);

 private:
  /// All nodes by their places, with null for this one.
  std::vector<PeerEntry*> members();
  Neighbours places(uint64_t round, const std::vector<PeerEntry*>& members) const;
  PeerEntry* choose_among(const std::vector<size_t>& places, const std::vector<PeerEntry*>& members, const std::set<std::string>& tried,
                          base::Nanos now, Rng& rng);

  const Node self_;
  const Topology topology_;
  const uint64_t seed_;
  std::map<std::string, PeerEntry> peers_;  ///< by name, which is also the order of places
  std::unordered_map<std::string, PeerEntry*> by_address_;
};

}  // namespace mv::gossip
