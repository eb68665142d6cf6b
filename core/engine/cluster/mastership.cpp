// Changes of the master, and the end of this node's part in the decisions about the members.

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/cluster/succession.hpp"

namespace mv::cluster {

/// A view is decided that this node has not written, as far as it knows.
void Cluster::take_decided(const View& view) {
  if (view.epoch <= roster_.decided().epoch || is_deposed()) return;
  election_.heard_of_decision();
  if (view.master == self_.peer) return decisions_.hold(view);  // it was written after all: the decisions are made again, and change nothing
  keeping_.learn(view);
  take_view(view, view.workers_gone());
}

void Cluster::change_master(const View& newer) {
  const base::Peer former = roster_.change_master(newer.master, newer.epoch);
  const bool mine = roster_.is_master();
  election_.end();
  keeping_.stop_reading();
  const Member* const was = roster_.view().find(former);
  base::detail::log_at(roster_.is_kept() ? MV_LOG_WARN : MV_LOG_INFO, "{} is the master now{}", mine ? "this process" : roster_.view().name(roster_.master()),
                       was != nullptr ? fmt::format(", in place of {}", roster_.view().name(former)) : "");
  const Member* const member = roster_.view().find(roster_.master());
  roster_.set_meets_master(!roster_.is_kept() && !mine && !contacts_.is_connected(roster_.master()) && (member == nullptr || member->state != State::kLost));
  if (!roster_.is_kept()) return;
  if (mine) {
    std::vector<base::Peer> workers;
    for (const Member* worker : newer.workers())
      if (worker->state == State::kHere) workers.push_back(worker->peer);
    return barrier_.take_over(workers);
  }
  newcomers_.on_new_master();
  const auto why = base::error(MV_EPEERLOST, "{} is the master now", roster_.view().name(roster_.master()));
  held_requests_.fail_all(base::Status(MV_EDISAGREE, why.text()));
  barrier_.close(why);
  decisions_.drop(why);
  decisions_.stop_waiting();
}

/// Without replicas: this master has drained, and decides no more. What it has not answered is asked again at its successor.
void Cluster::give_role(base::Peer to) {
  roster_.view().master = to;
  publisher_.publish();
  if (publisher_.is_due()) publisher_.send_to_all();
  roster_.change_master(to, roster_.view().epoch);
  standing_.set_given_role();
  barrier_.forget();
  newcomers_.on_new_master();
  calls_.end_all(roster_.why_role_is_given());
  base::log_info("{} is the master now", roster_.view().name(to));
}

/// Without replicas: the former master has named this node. The view is applied.
void Cluster::take_role() {
  std::vector<base::Peer> workers;
  for (const Member* worker : roster_.view().workers())
    if (worker->state == State::kHere) workers.push_back(worker->peer);
  barrier_.take_over(workers);
  ++roster_.view().epoch;  // this node's own view, in which more may have finished than in the one that it got: everybody gets all of it
  publisher_.begin();
  for (Member& known : roster_.view().members) {
    if (known.state == State::kLost && !known.is_out) decide_loss(known, known.is_worker(), base::Status(MV_EPEERLOST, known.why));
    if (roster_.needs(known)) connector_.meet(known.peer);
  }
  publisher_.publish();
}

/// The new master is known, and the view is applied: repeats there what the former one has not answered.
void Cluster::follow_master() {
  if (roster_.is_master()) {
    if (!roster_.is_kept()) take_role();
    barrier_.follow(self_.peer, calls_.passed(), calls_.told());
    if (roster_.is_kept()) decide_noticed();
    for (const auto& [asked, header] : held_requests_.take()) on_request(asked, *flatbuffers::GetRoot<wire::Message>(header.data()));
  } else {
    if (roster_.meets_master()) connector_.meet(roster_.master());
    heartbeat_.ping(roster_.master());
  }
  calls_.repeat_all();
  owner_.on_new_master();
  if (!roster_.is_kept() && roster_.has_lost_master()) miss_master(base::error(MV_EPEERLOST, "{} can't be reached from here", roster_.view().name(roster_.master())));
  if (!roster_.is_master() && !contacts_.is_connected(roster_.master())) election_.await_master(base::error(MV_EPEERLOST, "{} can't be reached from here", roster_.view().name(roster_.master())));
}

/// Applies the changes that have happened since this node asked to be the master.
void Cluster::decide_noticed() {
  for (Member& known : roster_.view().members) {
    const Member* const member = roster_.decided().find(known.peer);
    if (member == nullptr || member->state != State::kHere) continue;
    if (known.state == State::kFinished) {
      decisions_.decide_end(known.peer);
      barrier_.finished(known.peer);
    }
    if (known.state == State::kLost) decide_loss(known, known.is_worker(), base::Status(MV_EPEERLOST, known.why));
  }
}

/// This node can take no part any more: it was declared lost, or nobody can decide about the members.
void Cluster::cut_off(const base::Status& why) {
  if (standing_.is_cut_off() || !roster_.is_kept()) return;
  standing_.cut_off(why);
  if (roster_.is_master() || (election_.may_be_master() && election_.can_replace_master())) standing_.set_deposed();
  election_.end();
  keeping_.stop_reading();
  base::log_error("{}", why.text());
  if (standing_.is_to_be_deposed()) {  // the others lose this node, and ask the next master: an answer would fail their barriers first
    barrier_.forget();
    held_requests_.clear();
  }
  barrier_.close(why);
  held_requests_.fail_all(why);
  decisions_.drop(why);
  calls_.end_all(why);
  if (standing_.is_to_be_deposed() || std::ranges::any_of(roster_.view().members, [this](const Member& member) { return roster_.is_undecided_loss(member); })) depose();
  owner_.on_cut_off(why);
  owner_.on_news();
}

/// This node is cut off for good: the others must not wait for it. No process can confirm any more that the workers that this node has lost are
/// lost, and calls may wait for them here. So it declares them lost itself, after it has made sure that no other process learns of that.
void Cluster::depose() {
  standing_.set_deposed();
  owner_.on_deposed();
  std::vector<base::Peer> others;
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected && roster_.is_member(peer)) others.push_back(peer);
  for (const base::Peer peer : others) {
    departure_.send_abort(peer, standing_.why_cut_off().text());
    link_.close(peer);
  }
  for (const base::Peer peer : others) on_lost(peer, standing_.why_cut_off());
  for (const Member& member : roster_.view().members)
    if (member.is_worker() && member.state == State::kLost && !member.drained) owner_.on_worker_lost(member, base::Status(MV_EPEERLOST, member.why));
}

// ---- time

base::Nanos Cluster::keeping_deadline() const {
  if (!roster_.is_kept() || standing_.is_cut_off()) return base::kNever;
  return std::min({keeping_.next_deadline(), election_.next_deadline(), decisions_.next_deadline()});
}

void Cluster::tick_keeping(base::Nanos now) {
  if (!roster_.is_kept() || standing_.is_cut_off()) return;
  keeping_.tick_quorum();
  election_.tick(now);
  if (keeping_.is_read_due(now)) keeping_.read();
  if (election_.is_over(now)) cut_off(base::Status(MV_EPEERLOST, election_.why_no_master()));
  if (decisions_.is_to_tell(now)) heartbeat_.ping_members();
  if (decisions_.is_undecided() && now >= decisions_.patience_until() && !standing_.is_cut_off()) cut_off(base::Status(MV_EPEERLOST, decisions_.why_undecided()));
}

}  // namespace mv::cluster
