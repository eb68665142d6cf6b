// Members that are lost, have finished, or have been replaced: what this node does with it.

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/cluster.hpp"
#include "wire/text.hpp"

namespace mv::cluster {

namespace {
constexpr size_t kLongestReason = 1000;  // of an abort, in bytes
}  // namespace

void Cluster::on_lost(base::Peer peer, const base::Status& why) {
  contacts_.forget(peer);
  if (departure_.has_begun()) return departure_.look_again();
  if (standing_.phase() == Phase::kJoining) founding_.forget(peer);
  newcomers_.forget(peer);
  const Member* member = roster_.view().find(peer);
  const std::string name = member != nullptr ? roster_.view().name(peer) : peer == roster_.master() ? fmt::format("the master at {}", self_.master) : "";
  mark_lost(peer, name.empty() ? why : base::error(why.code(), "{} is gone: {}{}", name, why.text(), peer == roster_.master() ? roster_.lost_before(peer) : ""));
  if (member == nullptr && peer != roster_.master()) client_.forget(peer);
  if (peer == roster_.master()) owner_.on_news();
}

void Cluster::mark_lost(base::Peer peer, const base::Status& why) {
  contacts_.forget(peer);
  disputes_.forget(peer);
  held_requests_.forget(peer);
  newcomers_.settle_soon();
  if (peer == roster_.master()) {
    roster_.set_meets_master(false);
    roster_.set_master_is_undecided(false);
    election_.await_master(why);  // before the requests to it end
  }
  client_.on_lost(peer, why);
  Member* member = roster_.view().find(peer);
  const bool needed = member != nullptr && roster_.may_need(*member);
  if (member != nullptr && member->state == MemberState::kHere) {
    member->state = MemberState::kLost;
    member->why = why.text();
    if (member->is_worker() && (!roster_.is_kept() || is_deposed())) owner_.on_worker_lost(*member, why);
    owner_.on_member_lost(*member, why);
    if (member->is_server()) owner_.on_server_missed(*member, why);
    if (roster_.is_master()) endings_.lost(*member, member->is_worker(), why);
  } else if (member != nullptr && member->state == MemberState::kFinished && member->is_server() && !member->is_out && !roster_.view().workers_gone()) {
    member->why = why.text();
    if (member->drained) {
      member->state = MemberState::kLost;
      owner_.on_member_lost(*member, why);
    }
    owner_.on_server_missed(*member, why);
    if (roster_.is_master()) endings_.lost(*member, false, why);  // not all are connected with it
  }
  if (roster_.is_kept() && member != nullptr) cut_off_.lost(*member);
  if (roster_.is_kept() && election_.awaits_master()) election_.look_again();
  if (roster_.is_kept() && decisions_.is_undecided() && !roster_.decided().workers_gone() && !election_.can_replace_master())
    cut_off_.cut_off(base::error(MV_EPEERLOST, "{}, and too few processes are left to decide which server takes over its tables", why.text()));
  const bool can_go_on = member != nullptr && roster_.goes_on_without(*member);
  if (standing_.phase() == Phase::kConnecting && needed && !can_go_on) readiness_.fail(why);
  if (can_go_on) readiness_.look_again();
  server_.on_lost(peer);
  if (peer == roster_.master() && !roster_.is_kept()) miss_master(why);
}

/// A view says so.
void Cluster::declare_lost(base::Peer peer, const base::Status& why) {
  is_declared_ = true;
  mark_lost(peer, why);
  is_declared_ = false;
}

/// Without replicas: no process decides about the members any more, and each member has to notice by itself which others leave.
void Cluster::miss_master(const base::Status& why) {
  held_requests_.fail_all(base::error(MV_EPEERLOST, "the master of this cluster is lost: {}", why.text()));
  if (standing_.phase() == Phase::kReady && !roster_.view().workers_gone()) connect_with_all();
}

void Cluster::on_abort(base::Peer from, const wire::Abort& abort) {
  const Member* member = roster_.view().find(from);
  const std::string why = wire::text_of(abort.why()).substr(0, kLongestReason);
  const base::Status status = base::error(MV_EPEERLOST, "{}: {} (rank {}, pid {} on {})", roster_.view().short_name(from), why, member->rank, member->pid, member->host);
  mark_lost(from, status);  // before the sender learns that it was heard: then it ends its groups
  link_.close(from);
  if (from == roster_.master()) owner_.on_news();
}

void Cluster::on_unreachable(base::Peer from, const wire::Unreachable& note) {
  const auto verdict = disputes_.judge(from, note);
  if (!verdict) return;
  link_.close(verdict->lost);
  on_lost(verdict->lost, base::Status(MV_EPEERLOST, verdict->why));
}

void Cluster::mark_finished(base::Peer peer) {
  Member* member = roster_.view().find(peer);
  if (member == nullptr || member->state != MemberState::kHere) return;
  member->state = MemberState::kFinished;
  // Requests queued for a connection that will never be made would wait forever, so they fail here.
  if (roster_.ended_unmet(*member)) client_.on_lost(peer, base::error(MV_EPEERLOST, "{} has finished", roster_.view().name(peer)));
  owner_.on_member_finished(*member);
  if (roster_.is_master()) endings_.finished(peer);
  readiness_.look_again();  // it may have been the last member that this node waited for
}

/// A view says so. If this node had lost it meanwhile, only the connection was broken.
void Cluster::learn_finished(Member& worker) {
  if (roster_.is_kept() && worker.state == MemberState::kLost && !worker.is_out) worker.state = MemberState::kHere;
  mark_finished(worker.peer);
}

/// Another process has this rank now.
void Cluster::replace(const Member& member) {
  const auto place = std::find_if(roster_.view().members.begin(), roster_.view().members.end(), [&](const Member& m) { return m.rank == member.rank; });
  // This process itself was declared lost. It learns that from the master, which closes the connection.
  if (place == roster_.view().members.end() || place->peer == self_.peer) return;
  // This node missed the view that said so.
  if (place->is_worker() && !place->drained && member.losses == place->losses) learn_finished(*place);
  if (!place->is_vacant()) {
    const auto why = base::error(MV_EPEERLOST, "{} was lost", roster_.view().name(place->peer));
    declare_lost(place->peer, why);
    if (place->is_worker() && !place->drained && place->state == MemberState::kLost && roster_.is_kept()) owner_.on_worker_lost(*place, why);
  }
  forget_former(client_, *place);
  *place = member;
  place->state = MemberState::kHere;
  owner_.on_member_joined(*place);
  if (place->is_server()) owner_.on_part_moved(*place);
  if (contacts_.is_connected(member.peer))
    heartbeat_.ping(member.peer);
  else if (roster_.needs(*place)) {
    contacts_[member.peer].heard = clock_.now();  // if the master is lost, too, nobody else tells that this one never came
    if (roster_.own()->rank > member.rank) link_.dial(member.address);
  }
}

}  // namespace mv::cluster
