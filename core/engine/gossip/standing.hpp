#pragma once
// How a gossiping node stands, for people and for programs.

#include <string>
#include <vector>

#include "engine/gossip/gossip.hpp"

namespace mv::gossip {

struct PeerStanding {
  std::string name, address, road;  ///< road: "shared memory", "tcp", or empty where there is no connection
  double score = 0;
  uint64_t fetched = 0, failed = 0;
  double clock = 0, loss = 0;  ///< of what was fetched from it last
  std::string problem;
};

struct Standing {
  std::string name, address;
  double clock = 0, loss = 0;
  uint64_t updates = 0, averaged = 0, served_bytes = 0;
  double factor = 0;  ///< the last one
  std::string last;   ///< whom the last fetch got something from, or why from nobody
  std::vector<PeerStanding> peers;
};

std::string standing_text(const Standing& standing);
std::string standing_json(const Standing& standing);

}  // namespace mv::gossip
