#pragma once
// What the ways to the other members of a cluster are worth.

#include <vector>

#include "node/doctor/finding.hpp"
#include "node/node.hpp"

namespace mv::doctor {

/// "inproc", "shm", "tcp" or "none".
const char* name_of(const std::optional<base::RoadKind>& road);
/// "here", "finished" or "lost".
const char* name_of(node::PeerReport::State state);
/// "worker", "server", "all" or "scheduler".
const char* name_of_role(int32_t role);
/// Why messages to a peer do not go through shared memory; empty where they do, or where no messages go.
std::string why_not_shm(const node::PeerReport& peer);

/// A finding for each peer.
Findings judge_peers(const std::vector<node::PeerReport>& peers);

}  // namespace mv::doctor
