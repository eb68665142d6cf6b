#pragma once
// Which server keeps copies of whose tables, and who serves them after a loss.

#include <vector>

#include "engine/cluster/view.hpp"

namespace mv::cluster {

/// What the loss of a server changes.
struct Succession {
  std::vector<const Member*> changed;  ///< the servers whose tables another one serves from now on, or nobody
  bool loses_values = false;
};

/// On the master: `lost` is out. If it was a server with a living back-up, that one is its stand-in; what it had taken over itself has no
/// other copy.
Succession succeed(View& view, Member& lost, uint32_t replicas);

/// The back-up of this server, and the servers whose back-up it is. A server and its back-up that can't reach each other must not both go on:
/// the server would acknowledge what its back-up does not have. The master decides, so they report it.
std::vector<const Member*> partners(const View& view, const Member& server);

}  // namespace mv::cluster
