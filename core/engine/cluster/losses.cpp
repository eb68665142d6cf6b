// Members that are lost, have finished, or have been replaced: how this node learns of it, and what the master decides.

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/cluster/succession.hpp"

namespace mv::cluster {

void Cluster::on_lost(base::Peer peer, const base::Status& why) {
  contacts_.forget(peer);
  if (aborted_) return abort_if_all_told();
  if (standing_.phase() == Phase::kJoining) arrivals_.lost(peer);
  std::erase_if(early_, [&](const Early& early) { return early.asked.client == peer; });
  const Member* member = roster_.view().find(peer);
  const std::string name = member != nullptr ? roster_.view().name(peer) : peer == roster_.master() ? fmt::format("the master at {}", self_.master) : "";
  mark_lost(peer, name.empty() ? why : base::error(why.code(), "{} is gone: {}{}", name, why.text(), peer == roster_.master() ? roster_.lost_before(peer) : ""));
  if (member == nullptr && peer != roster_.master()) client_.forget(peer);
  if (peer == roster_.master()) owner_.on_news();
}

void Cluster::mark_lost(base::Peer peer, const base::Status& why) {
  contacts_.forget(peer);
  accused_.erase(peer);
  held_requests_.forget(peer);
  if (!early_.empty()) settle_at_ = clock_.now();
  if (peer == roster_.master()) {
    roster_.set_meets_master(false);
    roster_.set_master_is_undecided(false);
    election_.await_master(why);  // before the requests to it end
  }
  client_.on_lost(peer, why);
  Member* member = roster_.view().find(peer);
  const bool needed = member != nullptr && roster_.may_need(*member);
  if (member != nullptr && member->state == State::kHere) {
    member->state = State::kLost;
    member->why = why.text();
    if (member->is_worker() && (!roster_.is_kept() || is_deposed())) owner_.on_worker_lost(*member, why);
    owner_.on_member_lost(*member, why);
    if (member->is_server()) owner_.on_server_missed(*member, why);
    if (roster_.is_master()) decide_loss(*member, member->is_worker(), why);
  } else if (member != nullptr && member->state == State::kFinished && member->is_server() && !member->is_out && !roster_.view().workers_gone()) {
    member->why = why.text();
    if (member->drained) {
      member->state = State::kLost;
      owner_.on_member_lost(*member, why);
    }
    owner_.on_server_missed(*member, why);
    if (roster_.is_master()) decide_loss(*member, false, why);  // not all are connected with it
  }
  if (roster_.is_kept() && standing_.is_cut_off() && !standing_.is_to_be_deposed() && member != nullptr && roster_.is_undecided_loss(*member)) depose();
  if (roster_.is_kept() && election_.awaits_master()) election_.look_again();
  if (roster_.is_kept() && decisions_.is_undecided() && !roster_.decided().workers_gone() && !election_.can_replace_master())
    cut_off(base::error(MV_EPEERLOST, "{}, and too few processes are left to decide which server takes over its tables", why.text()));
  const bool can_go_on = member != nullptr && roster_.goes_on_without(*member);
  if (standing_.phase() == Phase::kConnecting && needed && !can_go_on) fail(why);
  if (can_go_on) ready_if_all_ready();
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

void Cluster::decide_loss(Member& member, bool fails_barriers, const base::Status& why) {
  const base::Peer peer = member.peer;
  if (!roster_.is_kept()) {
    if (is_taking_role_) return;  // see take_role()
    if (declare_out(member) || fails_barriers) {
      note_loss(roster_.view(), why.text());
      barrier_.lost(peer, why);
    }
    return publisher_.publish();
  }
  const Member* const before = roster_.decided().find(peer);
  if (before == nullptr || before->is_out || before->drained) return;
  if (roster_.decided().workers_gone() && !election_.can_replace_master()) return;  // the others end, too
  barrier_.gone(peer);
  decisions_.decide([peer, why, replicas = self_.replicas](View& next) {
    const Member* const lost = next.find(peer);
    if (lost == nullptr || lost->is_out || lost->drained) return base::Status(MV_ESTATE, "");
    (void)lose(next, peer, replicas, why.text());
    return base::Status();
  });
}

/// The master decides which server takes over the tables of a lost one. True if values are lost.
bool Cluster::declare_out(Member& member) {
  const Succession after = succeed(roster_.view(), member, self_.replicas);
  for (const Member* part : after.changed) owner_.on_part_moved(*part);
  return after.loses_values;
}

void Cluster::on_unreachable(base::Peer from, const wire::Unreachable& note) {
  const Member* const member = roster_.view().find(note.peer());
  const Member* const reporter = roster_.view().find(from);
  if (!roster_.is_master() || member == nullptr || member->state == State::kLost || member->peer == self_.peer) return;
  if (reporter == nullptr || reporter->is_out) return;  // the others close their connections with one that has left, perhaps before it knows
  const base::Peer lost = choose_lost(*reporter, *member);
  if (lost == base::kNobody) return;  // the report is repeated at the next beat
  const std::string why = lost == from ? fmt::format("it has lost its connection to {}, which lives", roster_.view().name(note.peer()))
                                       : fmt::format("{} has lost its connection to it", roster_.view().name(from));
  link_.close(lost);
  on_lost(lost, base::Status(MV_EPEERLOST, why));
}

void Cluster::report_unreachable() {
  const Member* const self = roster_.own();
  if (roster_.is_master() || self == nullptr || (!roster_.is_kept() && !roster_.view().has_departures())) return;
  // One that does not hear the master either is the one that can't be reached.
  const Contact* const master = contacts_.find(roster_.master());
  if (master == nullptr || !master->connected || clock_.now() - master->heard > self_.heartbeat_timeout / 2) return;
  const auto report = [this](const Member& lost) {
    link_.send(roster_.master(), builder_.finish(wire::Body::Unreachable, wire::CreateUnreachable(builder_.fbb(), lost.peer)));
  };
  for (const Member* partner : partners(roster_.view(), *self))
    if (!partner->is_out && partner->peer != roster_.master() && !contacts_.is_connected(partner->peer) && !partner->why.empty()) report(*partner);
  // Others may wait here for a worker that continues elsewhere.
  for (const Member* worker : roster_.view().workers())
    if (worker->peer != roster_.master() && roster_.is_undecided_loss(*worker)) report(*worker);
}

/// A server and another member have lost each other, though the master hears both: one of the two is lost. kNobody: the next report will tell. The
/// loss of a server that has back-ups fails no call, and that of a worker may. But a worker that another server has reported before is lost itself. A
/// process that was silent for a while was cut off, and may have lost all others.
base::Peer Cluster::choose_lost(const Member& reporter, const Member& reported) {
  const Contact* const contact = contacts_.find(reported.peer);
  if (!roster_.is_kept() || !can_spare(reporter) || contact == nullptr || !contact->connected) return reported.peer;
  const bool is_cut_off = was_silent(reporter.peer);
  if (was_silent(reported.peer) && !is_cut_off) return reported.peer;
  const Accused& accused = accused_.try_emplace(reported.peer, Accused{reporter.peer, clock_.now()}).first->second;
  if (contact->heard <= accused.since + interval()) return base::kNobody;  // it may have ended, and this node is still to hear of that
  if (is_cut_off && !was_silent(reported.peer)) {
    std::erase_if(accused_, [&](const auto& entry) { return entry.second.by == reporter.peer; });  // its reports say nothing of the others
    return reporter.peer;
  }
  if (reported.is_server() && !can_spare(reported)) return reporter.peer;
  const bool spares_worker = reported.is_worker() && !reporter.is_worker() && accused.by == reporter.peer;
  return spares_worker ? reporter.peer : reported.peer;
}

/// Whether the others can continue without this server, and without any loss.
bool Cluster::can_spare(const Member& server) const {
  if (!server.is_server() || server.peer == roster_.master()) return false;
  std::set<base::Peer> others;
  const auto lives = [&](const Member& member) {
    const Member* const here = roster_.view().find(member.peer);
    return here == nullptr || (here->state != State::kLost && !here->is_out);
  };
  for (const Member& member : roster_.decided().members) {
    if (member.is_server() && roster_.decided().serving(member) == server.peer && std::ranges::none_of(member.backups, [&](uint32_t backup) { return lives(*roster_.decided().at(backup - 1)); }))
      return false;
    if (member.votes && member.peer != server.peer && lives(member)) others.insert(member.peer);
  }
  return keeping_.is_quorum(others);
}

void Cluster::mark_finished(base::Peer peer) {
  Member* member = roster_.view().find(peer);
  if (member == nullptr || member->state != State::kHere) return;
  member->state = State::kFinished;
  // Requests queued for a connection that will never be made would wait forever, so they fail here.
  if (roster_.ended_unmet(*member)) client_.on_lost(peer, base::error(MV_EPEERLOST, "{} has finished", roster_.view().name(peer)));
  owner_.on_member_finished(*member);
  if (roster_.is_master() && roster_.is_kept()) {
    decisions_.decide_end(peer);
    barrier_.finished(peer);
  } else if (roster_.is_master() && !is_taking_role_) {
    barrier_.finished(peer);
    publisher_.publish();
  }
  ready_if_all_ready();  // it may have been the last member that this node waited for
}

/// A view says so. If this node had lost it meanwhile, only the connection was broken.
void Cluster::learn_finished(Member& worker) {
  if (roster_.is_kept() && worker.state == State::kLost && !worker.is_out) worker.state = State::kHere;
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
    if (place->is_worker() && !place->drained && place->state == State::kLost && roster_.is_kept()) owner_.on_worker_lost(*place, why);
  }
  *place = member;
  place->state = State::kHere;
  owner_.on_member_joined(*place);
  if (place->is_server()) owner_.on_part_moved(*place);
  if (contacts_.is_connected(member.peer))
    send_ping(member.peer);
  else if (roster_.needs(*place)) {
    contacts_[member.peer].heard = clock_.now();  // if the master is lost, too, nobody else tells that this one never came
    if (roster_.own()->rank > member.rank) link_.dial(member.address);
  }
}

}  // namespace mv::cluster
