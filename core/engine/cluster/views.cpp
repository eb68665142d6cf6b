// The lists of members: how the master sends a newer one, and what a member does with it.

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/cluster.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

// ---- on the master

/// The view has changed. Sends it to all members, at once or together with the changes that follow soon: when all n
/// workers end, n views of n members to n of them would take n^3 time. A lost View is sent again when a Ping shows an old
/// epoch.
void Cluster::publish() {
  ++roster_.view().epoch;
  roster_.view().moved = roster_.view().has_departures();
  const base::Nanos due = published_ + between_views();
  if (roster_.view().workers_gone() || clock_.now() >= due) return send_to_all();  // at the end, this process may not have another turn
  publish_at_ = std::min(publish_at_, due);
}

void Cluster::send_to_all() {
  published_ = clock_.now();
  publish_at_ = base::kNever;
  note_view();
  tell_members(roster_.view());
}

/// On a master without a keeper: what has changed is to be in the next messages.
void Cluster::note_view() {
  log_.follow(noted_, roster_.view());
  noted_ = roster_.view();
}

/// Sends each connected member what it lacks of this view, the last one of log_.
void Cluster::tell_members(const View& view) {
  std::map<uint64_t, base::Frame> frames;  // by the number of the receiver's view
  for (const Member& member : roster_.view().members) {
    Contact* const contact = contacts_.find(member.peer);
    if (member.peer == self_.peer || contact == nullptr || !contact->connected) continue;
    const uint64_t has = std::max(contact->epoch, contact->told);
    if (has >= view.epoch) continue;
    const auto [frame, is_new] = frames.try_emplace(has);
    if (is_new) frame->second = log_.write(builder_, view, has);
    contact->told = view.epoch;
    link_.send(member.peer, frame->second);
  }
}

/// The more members, the longer: each of them spends time on each member in a view.
base::Nanos Cluster::between_views() const {
  constexpr base::Nanos kForEachPair = 2us, kMost = 250ms;
  const auto members = static_cast<int64_t>(roster_.view().members.size());
  return std::min(members * members * kForEachPair, kMost);
}

void Cluster::on_view(base::Peer from, const wire::View& header, std::span<const std::byte> payload) {
  if (header.epoch() <= roster_.view().epoch || roster_.view().epoch == 0) return;
  const bool is_of_master = from == roster_.master() || from == header.master();  // the one before may have left without this node's knowledge
  if (!roster_.is_kept() && (!is_of_master || standing_.has_given_role())) return;
  if (header.base() > roster_.view().epoch) return send_ping(from);  // a view between them was lost: the ping asks for what has changed since this node's
  const auto update = read_update(header, payload);
  if (!update.ok() || update.value().view.epoch != header.epoch()) return;
  if (!roster_.is_kept()) return take_view(update.value().view, update.value().workers_gone);
  View next = roster_.decided();
  if (apply(update.value(), next)) take_decided(next);  // whoever sent it: it holds
}

/// The part of a newer view about this process itself. False if it is no longer a member.
bool Cluster::take_own_place(const View& newer) {
  const Member* const self = newer.find(self_.peer);
  if (standing_.is_drained() || (self != nullptr && (self->drained || !self->is_out))) return true;
  const auto why = base::error(MV_EPEERLOST, "the other processes have declared this one lost, and continue without it{}", self != nullptr ? ": " + self->why : "");
  if (!standing_.is_cut_off()) {
    standing_.set_deposed();
    cut_off(why);
  } else if (!standing_.is_to_be_deposed()) {  // it was cut off before
    depose();
    owner_.on_cut_off(why);
  }
  return false;
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
  if (roster_.is_kept() && !take_own_place(newer)) return;
  if (standing_.is_cut_off()) {  // it has waited too short a time for another master
    if (standing_.is_to_be_deposed()) return;
    standing_.reconnect();
    barrier_.close({});
  }
  const bool has_new_master = newer.master != roster_.master() && newer.master != base::kNobody;
  const uint64_t losses = roster_.view().losses;
  roster_.view().take_losses(newer);
  roster_.view().wanted_servers = newer.wanted_servers;
  roster_.view().elastic = newer.elastic;
  roster_.view().moved = newer.has_departures();
  if (roster_.is_kept()) {
    if (newer.epoch > log_.last()) log_.follow(roster_.decided(), newer);
    roster_.set_decided(newer);
  }
  if (has_new_master) change_master(newer);
  const bool takes_role = has_new_master && !roster_.is_kept();
  if (takes_role) is_taking_ = true;
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
    const bool has_finished = member.state == State::kFinished || (member.is_worker() && member.drained);  // workers finish before they drain
    if (Member* const known = roster_.view().find(member.peer); known != nullptr && has_finished && !is_self) {
      if (takes_role && known->state == State::kLost && !known->is_out) known->state = State::kFinished;  // only this node had lost it
      learn_finished(*known);
    }
    if ((member.state == State::kLost || member.is_out) && !is_self && !member.is_vacant()) {
      if (!roster_.is_master() || !member.drained || takes_role) link_.close(member.peer);  // else the answer to its HandOver may be lost
      declare_lost(member.peer, base::Status(MV_EPEERLOST, member.why));
      if (member.is_worker() && member.state == State::kLost && !member.drained && roster_.is_kept()) owner_.on_worker_lost(member, base::Status(MV_EPEERLOST, member.why));
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
      if (member.peer != self_.peer && roster_.needs(member) && !contacts_.is_connected(member.peer)) want(member.peer, Dialer::kSelf);
  }
  if (takes_role) is_taking_ = false;
  if (has_new_master) follow_master();
  welcome();
  owner_.on_news();
  if (standing_.is_drained()) owner_.on_drained();
}

}  // namespace mv::cluster
