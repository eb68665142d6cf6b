#pragma once
// Chooses which server keeps a copy of each part of the tables, and which one serves it after a loss. Called by the
// master.

#include <vector>

#include "engine/cluster/view.hpp"

namespace mv::cluster {

/// Chooses back-ups for each server's part, before there is any table: `replicas` of them, or as many as there are other
/// servers. Parts are spread evenly. Copies of one part are on different hosts as far as possible.
void name_backups(View& view, uint32_t replicas);

/// The server to which this part can move now, although its present one stays: it has one copy more than it should, and
/// all are equal. Its own server, if that has one; otherwise the last one in the chain. nullptr: it can't move.
const Member* destination(const View& view, const Member& part, uint32_t replicas);
/// Moves a part to its destination(), which passes inputs to the remaining back-ups. Its present server leaves the chain.
void move(View& view, Member& part, uint32_t replicas);

/// Chooses a next back-up for each part that has fewer back-ups than it should and no next one, if a server can take it.
/// All parts should have `replicas` back-ups; without replicas, those of draining servers should have one. Parts that
/// should move get one more than that, once they have the others. Each server gives one part at a time:
///  - a part whose own server is there, because a new process has taken the place, goes to it;
///  - then servers that serve at least two parts more than another one give parts whose own servers are missing to it.
/// The part of the first server, which directs checkpoints, does not move, and no part moves if its copies would then be
/// on fewer hosts.
/// Returns the parts that have a next back-up now.
std::vector<const Member*> name_next_backups(View& view, uint32_t replicas);

/// The next back-up of this part has its copy, and is the last one in the chain now. With replicas, chooses the next
/// back-ups that are needed then.
void take_copy(View& view, Member& part, uint32_t replicas);

/// Chooses the voters for the next view (quorum_keeper.hpp). These are the live servers. If their number is even,
/// another live process votes too: the master, or the one with the lowest rank. If one server is left, a master that is
/// no server votes too.
void name_voters(View& view);

/// What the loss of a server changes.
struct Succession {
  std::vector<const Member*> changed;  ///< the servers whose parts have a new server, back-up or next back-up
  bool loses_values = false;           ///< a part had no other copy
};

/// Changes the view for the loss of this server. The first back-ups of its parts serve them from now on; parts without a
/// back-up are lost. If there is another server, these parts get a next back-up, and so do parts whose back-up was `lost`: with
/// replicas all of them, without replicas those of draining servers.
Succession succeed(View& view, Member& lost, uint32_t replicas);

/// Declares this member lost in a view that is not decided yet, unless it is lost already. Counts the loss if it fails
/// a barrier of each survivor.
Succession lose(View& view, base::Peer peer, uint32_t replicas, const std::string& why);

/// Counts a loss that fails a barrier of each survivor.
void note_loss(View& view, const std::string& why);

/// Begins the drain of `leaver`. Its parts without a copy get a next back-up. Parts whose next back-up was `leaver` get
/// another one. Returns the parts whose next back-up has changed. MV_EUNREACHABLE if there is no server for a part of
/// the leaver; then nothing has changed.
base::Result<std::vector<const Member*>> begin_drain(View& view, Member& leaver, uint32_t replicas);

/// Notes the wanted number of servers. If there are more, those of the highest ranks begin to drain: those are members
/// with `draining` that had it not before. Returns the parts whose next back-up has changed. MV_EINVAL if there is no
/// room for as many, or too few can leave; MV_EUNREACHABLE as begin_drain(). Then nothing has changed.
base::Result<std::vector<const Member*>> begin_resize(View& view, uint32_t servers, uint32_t replicas);

/// Whether each part that `leaver` serves is among `parts` (1 + ranks), and has an equal copy at a live server.
bool can_hand_over(const View& view, const Member& leaver, const std::vector<uint32_t>& parts);

/// The servers that are this one's neighbours in the chain of a part. If two neighbours can't reach each other, only one
/// may continue, because the first would otherwise acknowledge changes that the second does not have. They
/// report it, and the master decides.
std::vector<const Member*> partners(const View& view, const Member& server);

}  // namespace mv::cluster
