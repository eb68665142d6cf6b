#pragma once
// How a gossiping node stands, for people and for programs.

#include <optional>
#include <string>
#include <vector>

#include "engine/gossip/gossip.hpp"

namespace mv::gossip {

struct PeerStanding {
  std::string name, address, road;  ///< road: "shared memory", "tcp", or empty where there is no connection
  double score = 0;
  uint64_t fetched = 0, failed = 0;
  double clock = 0, loss = 0;  ///< of what was fetched from it last
  double disagreement = 0;     ///< root mean square of its model less this node's, then
  bool waiting = false;        ///< for this node to begin an exchange
  std::string problem;
};

struct Standing {
  std::string name, address;
  std::string metrics;  ///< where it serves them over HTTP; empty: it does not
  double clock = 0, loss = 0;
  uint64_t updates = 0, averaged = 0;
  uint64_t served_versions = 0, served_bytes = 0, fetched_bytes = 0;  ///< by messages; those of one machine copy for themselves
  double factor = 0;        ///< the last one
  double disagreement = 0;  ///< with the last peer
  std::optional<ExchangeTally> exchanges;  ///< where they are symmetric
  std::string last;   ///< whom the last fetch got something from, or why from nobody
  std::vector<PeerStanding> peers;
};

std::string standing_text(const Standing& standing);
std::string standing_json(const Standing& standing);
/// For Prometheus.
std::string standing_metrics(const Standing& standing);

}  // namespace mv::gossip
