#pragma once
// Which server keeps copies of whose tables, and who serves them after a loss. Decided by the master.

#include <vector>

#include "engine/cluster/view.hpp"

namespace mv::cluster {

/// Names a back-up for each server's part, before there is any table. Parts are spread evenly; a back-up is on another host if there is one.
void name_backups(View& view);

/// Names a next back-up for each part that has neither, if there is a server that can be one. Returns those parts.
std::vector<const Member*> name_next_backups(View& view);

/// What the loss of a server changes.
struct Succession {
  std::vector<const Member*> changed;  ///< the servers whose parts have another server, back-up or next back-up from now on
  bool loses_values = false;           ///< a part had no other copy
};

/// `lost` is out. What it served is served by the back-ups; parts without a back-up are lost. Parts whose back-up it was, or whose back-up
/// serves them now, get a next back-up, if there is another server.
Succession succeed(View& view, Member& lost, uint32_t replicas);

/// The servers that this one shares a part with, as its server or its back-up. Two that can't reach each other must not both go on: the
/// server would acknowledge what its back-up does not have. The master decides, so they report it.
std::vector<const Member*> partners(const View& view, const Member& server);

}  // namespace mv::cluster
