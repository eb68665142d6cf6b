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
  ++view_.epoch;
  view_.moved = view_.has_departures();
  const base::Nanos due = published_ + between_views();
  if (view_.workers_gone() || clock_.now() >= due) return send_to_all();  // at the end, this process may not have another turn
  publish_at_ = std::min(publish_at_, due);
}

void Cluster::send_to_all() {
  published_ = clock_.now();
  publish_at_ = base::kNever;
  note_view();
  tell_members(view_);
}

/// On a master without a keeper: what has changed is to be in the next messages.
void Cluster::note_view() {
  log_.follow(noted_, view_);
  noted_ = view_;
}

/// Sends each connected member what it lacks of this view, the last one of log_.
void Cluster::tell_members(const View& view) {
  std::map<uint64_t, base::Frame> frames;  // by the number of the receiver's view
  for (const Member& member : view_.members) {
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
  const auto members = static_cast<int64_t>(view_.members.size());
  return std::min(members * members * kForEachPair, kMost);
}

void Cluster::on_view(base::Peer from, const wire::View& header, std::span<const std::byte> payload) {
  if (header.epoch() <= view_.epoch || view_.epoch == 0) return;
  const bool is_of_master = from == master_ || from == header.master();  // the one before may have left without this node's knowledge
  if (!is_kept() && (!is_of_master || has_given_role_)) return;
  if (header.base() > view_.epoch) return send_ping(from);  // a view between them was lost: the ping asks for what has changed since this node's
  const auto update = read_update(header, payload);
  if (!update.ok() || update.value().view.epoch != header.epoch()) return;
  if (!is_kept()) return take_view(update.value().view, update.value().workers_gone);
  View next = decided_;
  if (apply(update.value(), next)) take_decided(next);  // whoever sent it: it holds
}

/// The part of a newer view about this process itself. False if it is no longer a member.
bool Cluster::take_own_place(const View& newer) {
  const Member* const self = newer.find(self_.peer);
  if (is_drained_ || (self != nullptr && (self->drained || !self->is_out))) return true;
  const auto why = base::error(MV_EPEERLOST, "the other processes have declared this one lost, and continue without it{}", self != nullptr ? ": " + self->why : "");
  if (cut_off_.ok()) {
    is_deposed_ = true;
    cut_off(why);
  } else if (!is_deposed_) {  // it was cut off before
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
  if (is_kept() && !take_own_place(newer)) return;
  if (!cut_off_.ok()) {  // it has waited too short a time for another master
    if (is_deposed_) return;
    cut_off_ = {};
    barrier_.close({});
  }
  const bool has_new_master = newer.master != master_ && newer.master != base::kNobody;
  const uint64_t losses = view_.losses;
  view_.take_losses(newer);
  view_.wanted_servers = newer.wanted_servers;
  view_.elastic = newer.elastic;
  view_.moved = newer.has_departures();
  if (is_kept()) {
    if (newer.epoch > log_.last()) log_.follow(decided_, newer);
    decided_ = newer;
  }
  if (has_new_master) change_master(newer);
  const bool takes_role = has_new_master && !is_kept();
  if (takes_role) is_taking_ = true;
  view_.epoch = newer.epoch;
  told_gone_ = workers_gone;
  master_is_undecided_ = false;
  std::vector<const Member*> moved;
  for (const Member& member : newer.members) {
    const bool is_self = member.peer == self_.peer;
    if (view_.find(member.peer) == nullptr) replace(member);
    if (Member* const known = view_.find(member.peer)) {
      const bool begins = member.draining && !known->draining;
      std::tie(known->draining, known->drained) = std::pair(member.draining, member.drained);
      if (begins) owner_.on_member_draining(*known);
    }
    is_drained_ = is_drained_ || (is_self && member.drained);
    const bool has_finished = member.state == State::kFinished || (member.is_worker() && member.drained);  // workers finish before they drain
    if (Member* const known = view_.find(member.peer); known != nullptr && has_finished && !is_self) {
      if (takes_role && known->state == State::kLost && !known->is_out) known->state = State::kFinished;  // only this node had lost it
      learn_finished(*known);
    }
    if ((member.state == State::kLost || member.is_out) && !is_self && !member.is_vacant()) {
      if (!is_master() || !member.drained || takes_role) link_.close(member.peer);  // else the answer to its HandOver may be lost
      declare_lost(member.peer, base::Status(MV_EPEERLOST, member.why));
      if (member.is_worker() && member.state == State::kLost && !member.drained && is_kept()) owner_.on_worker_lost(member, base::Status(MV_EPEERLOST, member.why));
    }
    Member* const known = view_.find(member.peer);
    if (known == nullptr || (is_self && member.is_out)) continue;  // the master closes the connection
    known->votes = member.votes;
    if (take_part(*known, member) && known->is_server()) moved.push_back(known);
  }
  for (const Member* part : moved) owner_.on_part_moved(*part);
  if (is_master() && is_kept()) {
    for (uint64_t loss = losses; loss < view_.losses; ++loss) barrier_.tell_loss(view_.loss(loss));
    for (const Member& member : view_.members)
      if (member.peer != self_.peer && needs(member) && !contacts_.is_connected(member.peer)) want(member.peer, Dialer::kSelf);
  }
  if (takes_role) is_taking_ = false;
  if (has_new_master) follow_master();
  welcome();
  owner_.on_news();
  if (is_drained_) owner_.on_drained();
}

}  // namespace mv::cluster
