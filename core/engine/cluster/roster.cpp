#include "engine/cluster/roster.hpp"

#include <algorithm>
#include <utility>

namespace mv::cluster {

bool Roster::is_member(base::Peer peer) const {
  const Member* member = view_.find(peer);
  return member != nullptr && member->state != MemberState::kLost;
}

bool Roster::may_send(base::Peer peer, Sender sender) const {
  switch (sender) {
    case Sender::kAnyone:
      return true;
    case Sender::kMember:
      return is_member(peer);
    case Sender::kAsked:
      return peer == master_ || is_member(peer);
    case Sender::kMaster:
      return peer == master_;
    case Sender::kCoordinator: {
      const auto servers = view_.servers();
      if (self_.replicas > 0 || view_.has_departures()) return is_member(peer) && view_.find(peer)->is_server();
      return !servers.empty() && servers.front()->peer == peer;
    }
    case Sender::kNobody:
      break;
  }
  return false;
}

base::Peer Roster::change_master(base::Peer peer, uint64_t epoch) {
  const base::Peer former = std::exchange(master_, peer);
  view_.master = decided_.master = master_;
  master_since_ = epoch;
  return former;
}

bool Roster::needs(const Member& member) const {
  const Member* self = own();
  if (member.peer == self_.peer || member.state == MemberState::kLost) return false;
  // A finished worker may still be a server.
  if (member.state == MemberState::kFinished && member.peer != master_ && !member.is_server()) return false;
  // With a keeper, each server may be the master one day.
  if (is_kept() && (self->is_server() || member.is_server())) return true;
  return member.peer == master_ || is_master() || contacts_.is_wanted(member.peer);
}

bool Roster::may_need(const Member& member) const {
  if (member.peer == self_.peer || member.state == MemberState::kLost) return false;
  if (needs(member)) return true;
  return (member.state == MemberState::kHere || member.is_server()) && view_.need_each_other(*own(), member);
}

bool Roster::ended_unmet(const Member& member) const {
  return member.state == MemberState::kFinished && member.peer != self_.peer && !may_need(member) && !contacts_.is_connected(member.peer);
}

/// Usually the master reports a loss, but there may be no master.
bool Roster::judges_alone(base::Peer peer) const {
  const Member* const member = view_.find(peer);
  const Contact* const contact = contacts_.find(peer);
  // With a keeper, another master will report it.
  const bool is_expected = (contact != nullptr && contact->wanted) || (!is_kept() && member != nullptr && needs(*member));
  const Member* const master = view_.find(master_);
  const bool has_ended = master != nullptr && master->state == MemberState::kFinished && has_lost_master();
  const bool nobody_tells = master != nullptr && (master->state == MemberState::kLost || has_ended || (peer == master_ && !is_kept()));
  return is_expected && (nobody_tells || is_master());
}

/// A server with a back-up isn't needed: the master will name the server that takes over its tables. A process that is
/// only a server continues without the others: workers may be using its tables already, since not all members get ready
/// at once.
bool Roster::goes_on_without(const Member& member) const {
  const Member* const self = own();
  const bool only_serves = self != nullptr && !self->is_worker();
  return member.peer != master_ && (only_serves || member.departs() || (self_.replicas > 0 && member.is_server()));
}

bool Roster::all_workers_gone() const {
  // Nobody will tell this node of the end of a worker that it has never met.
  const auto may_call = [this](const Member& member) {
    return member.is_worker() && member.state == MemberState::kHere && (member.peer == self_.peer || contacts_.is_connected(member.peer));
  };
  if (standing_.is_cut_off() && !contacts_.is_connected(master_)) return std::ranges::none_of(view_.members, may_call);
  if (is_kept() && !standing_.is_cut_off() && is_master()) return decided_.workers_gone();
  if (is_master()) {  // after a change of the master, all have to hear of it
    const auto is_unmet = [this](const Member& member) {
      return member.is_server() && needs(member) && contacts_.is_wanted(member.peer) && !contacts_.is_connected(member.peer);
    };
    return view_.workers_gone() && (is_kept() || master_since_ == 0 || told_gone_ || std::ranges::none_of(view_.members, is_unmet));
  }
  return has_lost_master() ? view_.workers_gone() : told_gone_;
}

std::vector<base::Peer> Roster::leave_targets() const {
  std::vector<base::Peer> targets;
  for (const Member& member : view_.members) {
    const bool will_connect = contacts_.is_connected(member.peer) || (!is_kept() && contacts_.is_wanted(member.peer));
    if (member.peer != master_ && !will_connect) continue;
    if (member.peer != self_.peer && member.state != MemberState::kLost && !ended_unmet(member) &&
        (member.peer == master_ || member.is_server() || contacts_.is_wanted(member.peer)))
      targets.push_back(member.peer);
  }
  return targets;
}

size_t Roster::unconnected() const {
  return static_cast<size_t>(std::ranges::count_if(
      view_.members, [&](const Member& member) { return may_need(member) && !contacts_.is_connected(member.peer); }));
}

View Roster::certain_view() const {
  View view = view_;
  if (!is_kept() || standing_.is_cut_off()) return view;
  for (Member& member : view.members) {
    const Member* const decided = decided_.find(member.peer);
    if (member.state == MemberState::kLost) member.state = decided != nullptr ? decided->state : MemberState::kHere;  // null: replace() will tell
  }
  return view;
}

bool Roster::is_undecided_loss(const Member& member) const {
  const Member* const decided = decided_.find(member.peer);
  return is_kept() && own()->is_server() && member.is_worker() && member.state == MemberState::kLost && decided != nullptr &&
         decided->state == MemberState::kHere;
}

/// The program of a master has often ended because of an earlier loss, and then this process's calls fail without
/// another word of it.
std::string Roster::lost_before(base::Peer peer) const {
  const auto first = std::ranges::find_if(view_.members, [&](const Member& member) { return member.peer != peer && member.state == MemberState::kLost; });
  return first != view_.members.end() && !first->why.empty() ? "; lost before it: " + first->why : "";
}

base::Status Roster::why_left_alone() const {
  if (standing_.is_cut_off() || !has_lost_master()) return standing_.why_cut_off();
  const auto workers = view_.workers();
  const auto lost = std::ranges::find_if(workers, [this](const Member* member) { return is_undecided_loss(*member); });
  if (lost == workers.end()) return {};
  return base::error(MV_EPEERLOST, "this process has lost its connections to the master and to {}, which may continue without it: it may have been silent for longer "
                                   "than heartbeat_timeout_ms",
                     view_.name((*lost)->peer));
}

base::Status Roster::why_role_is_given() const {
  return base::error(MV_EPEERLOST, "this process, the former master, has left: {} is the master now", view_.name(master_));
}

}  // namespace mv::cluster
