#pragma once
// The state of a gossip node, for people and for programs.

#include <optional>
#include <string>
#include <vector>

#include "engine/gossip/gossip.hpp"

namespace mv::gossip {

struct PeerState {
  std::string name, address, transport;  ///< transport: "shared memory", "tcp", or empty if not connected
  double score = 0;
  uint64_t fetched = 0, failed = 0;
  double clock = 0, loss = 0;  ///< of the version fetched from it last
  double disagreement = 0;     ///< root mean square of its model minus this node's, then
  bool waiting = false;        ///< for this node to begin an exchange
  std::string problem;
};

struct GossipState {
  std::string name, address;
  std::string metrics;  ///< address of its HTTP server; empty: none
  double clock = 0, loss = 0;
  uint64_t updates = 0, averaged = 0;
  uint64_t served_versions = 0, served_bytes = 0, fetched_bytes = 0;  ///< by messages; peers of one machine copy from mapped memory
  double factor = 0;        ///< the last one
  double disagreement = 0;  ///< with the last peer
  std::optional<ExchangeTally> exchanges;  ///< if they are symmetric
  std::string last;   ///< the peer of the last fetch, or why there was none
  std::vector<PeerState> peers;
};

std::string text_of(const GossipState& state);
std::string json_of(const GossipState& state);
/// For Prometheus.
std::string metrics_of(const GossipState& state);

}  // namespace mv::gossip
