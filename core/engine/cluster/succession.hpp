#pragma once
// Which server keeps copies of whose tables, and who serves them after a loss. Decided by the master.

#include <vector>

#include "engine/cluster/view.hpp"

namespace mv::cluster {

/// Names a back-up for each server's part, before there is any table. Parts are spread evenly; a back-up is on another host if there is one.
void name_backups(View& view);

/// Names a next back-up for each part that has neither and should have one, if there is a server that can be one: with replicas all parts, without
/// them those of draining servers. Returns those parts.
std::vector<const Member*> name_next_backups(View& view, uint32_t replicas);

/// What the loss of a server changes.
struct Succession {
  std::vector<const Member*> changed;  ///< the servers whose parts have another server, back-up or next back-up from now on
  bool loses_values = false;           ///< a part had no other copy
};

/// `lost` is out. What it served is served by the back-ups; parts without a back-up are lost. With replicas, parts whose back-up it was, or whose
/// back-up serves them now, get a next back-up, if there is another server; those of draining servers always do.
Succession succeed(View& view, Member& lost, uint32_t replicas);

/// `leaver` is to end. Its parts that have no copy get one, and so do those that it would have got a copy of. Returns the parts that have another
/// next back-up now. MV_EUNREACHABLE if there is no server for a part of the leaver: then nothing has changed.
base::Result<std::vector<const Member*>> begin_drain(View& view, Member& leaver, uint32_t replicas);

/// Whether each part that `leaver` serves is among `parts` (1 + ranks), and has an equal copy at a server that lives.
bool can_hand_over(const View& view, const Member& leaver, const std::vector<uint32_t>& parts);

/// The servers that this one shares a part with, as its server or its back-up. Two that can't reach each other must not both go on: the
/// server would acknowledge what its back-up does not have. The master decides, so they report it.
std::vector<const Member*> partners(const View& view, const Member& server);

}  // namespace mv::cluster
