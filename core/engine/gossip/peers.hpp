#pragma once
// The nodes that this one knows: where they are, how well they answer, and whom to ask next.

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
  base::Peer life = base::kNobody;       ///< while there is a connection
  base::Peer last_life = base::kNobody;  ///< the newest that there was one to
  bool dialing = false;
  bool doubted = false;                  ///< it was silent: another life may have taken its place, and nobody told
  uint64_t fetched = 0, failed = 0;
  double clock = 0, loss = 0;            ///< of what was fetched last
  double disagreement = 0;               ///< root mean square of its model less this node's, when they were averaged last
  std::string problem;                   ///< the last one; none since the last success
  base::Peer told_of = base::kNobody;    ///< the life whose refusal the log has told
  bool told_of_way = false;              ///< the log has told that it can't be connected to
};

class PeerBook {
 public:
  /// `seed` is what all nodes have in common.
  PeerBook(Node self, Topology topology, uint64_t seed) : self_(std::move(self)), topology_(topology), seed_(seed) {}

  const Node& self() const { return self_; }
  /// MV_EINVAL for a node that can't be one, MV_EDISAGREE for a name or address that is there.
  base::Status add(const Node& node);
  /// MV_ENOTFOUND.
  base::Result<PeerEntry> remove(const std::string& name);

  PeerEntry* find(const std::string& name);
  PeerEntry* at_address(const std::string& address);
  PeerEntry* of_life(base::Peer life);
  const std::map<std::string, PeerEntry>& all() const { return peers_; }

  /// Somebody at this address is connected. Another life than before begins with a full score.
  PeerEntry* connected(base::Peer life, const std::string& address, base::Nanos now);

  /// Whom to ask in this round, but for those in `tried`: by topology, score and chance. Null if nobody is left.
  PeerEntry* choose_next(uint64_t round, const std::set<std::string>& tried, base::Nanos now, Rng& rng);
  /// Whether there is anybody else but those in `tried` to ask in this round.
  bool has_next(uint64_t round, const std::set<std::string>& tried);

 private:
  /// By their places; this node as null among them.
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
