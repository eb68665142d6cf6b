#pragma once
// How long members wait for a decision about the members.

#include "engine/cluster/self.hpp"

namespace mv::cluster {

/// Without a master, or with one that can't decide: all that can take the master's place have noticed its loss by then,
/// and have tried.
inline base::Nanos patience_without_decision(const Self& self) { return 2 * self.heartbeat_timeout + std::chrono::seconds(2); }

}  // namespace mv::cluster
