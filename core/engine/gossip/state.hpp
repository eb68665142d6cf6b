#pragma once
// How a gossiping node stands, for people and for programs.

#include <optional>
#include <string>
#include <vector>

#include "engine/gossip/gossip.hpp"

namespace mv::gossip {

struct PeerState {
  std::string name, address, transport;  ///< transport: "shared memory", "tcp", or empty where there is no connection
  double score = 0;
  uint64_t fetched = 0, failed = 0;
  double clock = 0, loss = 0;  ///< of what was fetched from it last
  double disagreement = 0;     ///< root mean square of its model less this node's, then
  bool waiting = false;        ///< for this node to begin an exchange
  std::string problem;
};

struct GossipState {
  std::string name, address;
  std::string metrics;  ///< where it serves them over HTTP; empty: it does not
  double clock = 0, loss = 0;
  uint64_t updates = 0, averaged = 0;
  uint64_t served_versions = 0, served_bytes = 0, fetched_bytes = 0;  ///< by messages; those of one machine copy for themselves
  double factor = 0;        ///< the last one
  double disagreement = 0;  ///< with the last peer
  std::optional<ExchangeTally> exchanges;  ///< where they are symmetric
  std::string last;   ///< whom the last fetch got something from, or why from nobody
  std::vector<PeerState> peers;
};

std::string text_of(const GossipState& state);
std::string json_of(const GossipState& state);
/// For Prometheus.
std::string metrics_of(const GossipState& state);

}  // namespace mv::gossip
