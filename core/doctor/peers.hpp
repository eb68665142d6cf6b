#pragma once
// Judges the paths to the other members of a cluster.

#include <vector>

#include "api/node/node.hpp"
#include "doctor/finding.hpp"

namespace mv::doctor {

/// "inproc", "shm", "tcp", "ucx" or "none".
const char* name_of(const std::optional<base::TransportKind>& transport);
/// "here", "finished" or "lost".
const char* name_of(api::PeerReport::State state);
/// "worker", "server", "all" or "scheduler".
const char* name_of_role(int32_t role);
/// Why messages to a peer do not use shared memory; empty if they do, or if no messages are sent to it.
std::string why_not_shm(const api::PeerReport& peer);

/// A finding for each peer.
Findings judge_peers(const std::vector<api::PeerReport>& peers);

}  // namespace mv::doctor
