// Newer lists of members, and what this node does with them.

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/cluster.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

void Cluster::on_view(base::Peer from, const wire::View& header, std::span<const std::byte> payload) {
  if (header.epoch() <= roster_.view().epoch || roster_.view().epoch == 0) return;
  const bool is_of_master = from == roster_.master() || from == header.master();  // the one before may have left without this node's knowledge
  if (!roster_.is_kept() && (!is_of_master || standing_.has_given_role())) return;
  if (header.base() > roster_.view().epoch) return heartbeat_.ping(from);  // a view between them was lost: the ping asks for what has changed since this node's
  const auto update = read_update(header, payload);
  if (!update.ok() || update.value().view.epoch != header.epoch()) return;
  if (!roster_.is_kept()) return take_view(update.value().view, update.value().workers_gone);
  View next = roster_.decided();
  if (apply(update.value(), next)) take_decided(next);  // whoever sent it: it holds
}

namespace {
/// Who serves this member's part and keeps copies of it. True if that has changed.
bool take_part(Member& known, const Member& newer) {
  const auto part = [](const Member& of) { return std::tuple(of.is_out, of.stand_in, of.backups, of.next_backup); };
  if (part(known) == part(newer)) return false;
  std::tie(known.is_out, known.stand_in, known.backups, known.next_backup) = part(newer);
  return true;
}
}  // namespace

/// @param newer  without a keeper it may have only the members that have changed: what this node has noticed itself stays as it is
/// @param workers_gone  View::workers_gone() of the whole view
void Cluster::take_view(const View& newer, bool workers_gone) {
  if (roster_.is_kept() && !cut_off_.is_in(newer)) return;
  if (!cut_off_.reconnect()) return;
  const bool has_new_master = newer.master != roster_.master() && newer.master != base::kNobody;
  const uint64_t losses = roster_.view().losses;
  roster_.view().take_losses(newer);
  roster_.view().wanted_servers = newer.wanted_servers;
  roster_.view().elastic = newer.elastic;
  roster_.view().moved = newer.has_departures();
  if (roster_.is_kept()) {
    if (newer.epoch > publisher_.last()) publisher_.follow(newer);
    roster_.set_decided(newer);
  }
  if (has_new_master) change_master(newer);
  const bool takes_role = has_new_master && !roster_.is_kept();
  if (takes_role) endings_.hold(true);
  roster_.view().epoch = newer.epoch;
  roster_.set_told_gone(workers_gone);
  roster_.set_master_is_undecided(false);
  std::vector<const Member*> moved;
  for (const Member& member : newer.members) {
    const bool is_self = member.peer == self_.peer;
    if (roster_.view().find(member.peer) == nullptr) replace(member);
    if (Member* const known = roster_.view().find(member.peer)) {
      const bool begins = member.draining && !known->draining;
      std::tie(known->draining, known->drained) = std::pair(member.draining, member.drained);
      if (begins) owner_.on_member_draining(*known);
    }
    if (is_self && member.drained) standing_.set_drained();
    const bool has_finished = member.state == MemberState::kFinished || (member.is_worker() && member.drained);  // workers finish before they drain
    if (Member* const known = roster_.view().find(member.peer); known != nullptr && has_finished && !is_self) {
      if (takes_role && known->state == MemberState::kLost && !known->is_out) known->state = MemberState::kFinished;  // only this node had lost it
      learn_finished(*known);
    }
    if ((member.state == MemberState::kLost || member.is_out) && !is_self && !member.is_vacant()) {
      if (!roster_.is_master() || !member.drained || takes_role) link_.close(member.peer);  // else the answer to its HandOver may be lost
      declare_lost(member.peer, base::Status(MV_EPEERLOST, member.why));
      if (member.is_worker() && member.state == MemberState::kLost && !member.drained && roster_.is_kept()) owner_.on_worker_lost(member, base::Status(MV_EPEERLOST, member.why));
    }
    Member* const known = roster_.view().find(member.peer);
    if (known == nullptr || (is_self && member.is_out)) continue;  // the master closes the connection
    known->votes = member.votes;
    if (take_part(*known, member) && known->is_server()) moved.push_back(known);
  }
  for (const Member* part : moved) owner_.on_part_moved(*part);
  if (roster_.is_master() && roster_.is_kept()) {
    for (uint64_t loss = losses; loss < roster_.view().losses; ++loss) barrier_.tell_loss(roster_.view().loss(loss));
    for (const Member& member : roster_.view().members)
      if (member.peer != self_.peer && roster_.needs(member) && !contacts_.is_connected(member.peer)) connector_.want(member.peer, Dialer::kSelf);
  }
  if (takes_role) endings_.hold(false);
  if (has_new_master) follow_master();
  strangers_.welcome();
  owner_.on_news();
  if (standing_.is_drained()) owner_.on_drained();
}

}  // namespace mv::cluster
