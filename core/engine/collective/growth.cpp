// Groups that grow: the newcomers' wishes, the members' invitations.

#include <algorithm>
#include <utility>

#include "engine/collective/groups.hpp"
#include "engine/collective/note.hpp"
#include "wire/text.hpp"

namespace mv::collective {

// ---- members

void Groups::grow(const base::OperationRef& call, const GroupRef& group, Growth growth, Opened opened) {
  agree(call, group, std::move(growth), std::move(opened));
}

Agreement::Wish Groups::wish_of(const Group& group, const Growth& growth) const {
  Agreement::Wish wish{true, growth.size, {}};
  const auto wishes = wishes_.find(growth.name);
  if (wishes == wishes_.end()) return wish;
  const auto& peers = group.members().peers;
  const auto is_rank = [&](base::Peer peer) {  // one that has left may come back
    const auto found = std::ranges::find(peers, peer);
    return found != peers.end() && !group.agreement().is_gone(static_cast<uint32_t>(found - peers.begin()));
  };
  for (const auto& [peer, place] : wishes->second)
    if (!is_rank(peer)) wish.newcomers.push_back({peer, place});
  return wish;  // in order, as the map is
}

void Groups::on_wish(base::Peer from, const wire::GroupNote& note) {
  const cluster::Member* const member = cluster_.view().find(from);
  if (member == nullptr || !member->is_worker() || member->state != cluster::MemberState::kHere) return;
  cluster_.want(from);
  const std::string name = wire::text_of(note.text());
  if (note.asks())
    wishes_[name][from] = member->rank;
  else if (const auto wishes = wishes_.find(name); wishes != wishes_.end() && wishes->second.erase(from) > 0 && wishes->second.empty())
    wishes_.erase(wishes);
  wishes_changed(name);
}

void Groups::wishes_changed(const std::string& name) {
  std::vector<std::pair<GroupRef, Growth>> growing;  // a decision ends its entry
  for (const auto& [id, shrinking] : shrinkings_)
    if (shrinking.growth && shrinking.growth->name == name) growing.emplace_back(shrinking.group, *shrinking.growth);
  for (const auto& [group, growth] : growing) group->agreement().change(wish_of(*group, growth));
}

/// Every member invites the newcomers: the one that decided may be gone.
void Groups::invite(const Members& members, const std::string& name) {
  const auto self = std::ranges::find(members.peers, cluster_.self().peer);
  for (size_t rank = 0; rank < members.peers.size(); ++rank) {
    if (members.since[rank] != members.generation) continue;
    Note note;
    note.group = members.id;
    note.word = wire::GroupWord::Invites;
    note.from = static_cast<uint32_t>(self - members.peers.begin());
    note.text = name;
    note.peers.assign(members.peers.begin(), members.peers.end());
    note.places = members.places;
    note.since = members.since;
    note.generation = members.generation;
    note.epoch = cluster_.view().epoch;
    sender_.send(members.peers[rank], frame_of(sender_.builder(), note));
  }
}

// ---- newcomers

void Groups::join(const base::OperationRef& call, const std::string& name, Opened opened) {
  if (joinings_.contains(name)) return opened(base::Status(MV_ESTATE, "another thread is joining a group by this name"));
  joinings_.emplace(name, Joining{begin(call), std::move(opened), std::nullopt, {}});
  for (const cluster::Member* worker : cluster_.view().workers()) tell_wish(worker->peer, name, true);
}

void Groups::joined(const cluster::Member& member) {
  if (!member.is_worker()) return;
  for (const auto& [name, joining] : joinings_) tell_wish(member.peer, name, true);
}

void Groups::tell_wish(base::Peer to, const std::string& name, bool wants) {
  const cluster::Member* const member = cluster_.view().find(to);
  if (to == cluster_.self().peer || member == nullptr || member->state != cluster::MemberState::kHere) return;
  cluster_.want(to, cluster::Cluster::Dialer::kSelf);
  Note note;
  note.word = wire::GroupWord::Wishes;
  note.text = name;
  note.asks = wants;
  sender_.send(to, frame_of(sender_.builder(), note));
}

void Groups::on_invitation(base::Peer from, const wire::GroupNote& note) {
  const auto* const peers = note.peers();
  const auto *places = note.places(), *since = note.since();
  if (peers == nullptr || places == nullptr || since == nullptr || places->size() != peers->size() || since->size() != peers->size()) return;
  Invitation invitation;
  invitation.epoch = note.epoch();
  invitation.members.id = note.group();
  invitation.members.peers.assign(peers->begin(), peers->end());
  invitation.members.places.assign(places->begin(), places->end());
  invitation.members.since.assign(since->begin(), since->end());
  invitation.members.generation = note.generation();
  const auto self = std::ranges::find(invitation.members.peers, cluster_.self().peer);
  if (self == invitation.members.peers.end() || std::ranges::find(invitation.members.peers, from) == invitation.members.peers.end()) return;
  const std::string name = wire::text_of(note.text());
  const auto joining = joinings_.find(name);
  if (joining == joinings_.end()) {
    Note answer;
    answer.group = note.group();
    answer.word = wire::GroupWord::Closed;
    answer.from = static_cast<uint32_t>(self - invitation.members.peers.begin());
    answer.status = MV_EPEERLOST;
    answer.generation = note.generation();
    answer.text = "it has given up joining";
    return sender_.send(from, frame_of(sender_.builder(), answer));
  }
  joining->second.invited = std::move(invitation);
  try_invitation(name);
}

/// Opens the group that this node is invited to, if it knows all of its members. False if it does not yet.
bool Groups::try_invitation(const std::string& name) {
  Joining& joining = joinings_.at(name);
  const auto is_known = [&](base::Peer peer) { return cluster_.view().find(peer) != nullptr; };
  const cluster::Member* const master = cluster_.view().find(cluster_.master());
  const bool may_learn = cluster_.view().epoch < joining.invited->epoch && master != nullptr && master->state != cluster::MemberState::kLost;
  if (may_learn && !std::ranges::all_of(joining.invited->members.peers, is_known)) return false;
  const Members members = std::exchange(joining.invited, std::nullopt)->members;
  if (groups_.contains(members.id)) return true;  // it was invited by another rank while it waited
  const GroupRef group = add(members);
  joining.tried.push_back(group);
  const auto ended = [this, name, weak = std::weak_ptr(group)](const base::Result<GroupRef>& result) {
    const auto found = joinings_.find(name);
    const bool is_tried = found != joinings_.end() && std::erase(found->second.tried, weak.lock()) > 0;
    if (!is_tried) return result.ok() ? close(result.value()) : void();
    if (const GroupRef tried = weak.lock(); tried != nullptr && !(result.ok() && result.value() == tried)) close(tried);
    if (result.ok() || found->second.tried.empty()) end_join(name, result);
  };
  begin_opening({joining.caller, group, ended, nullptr, true, Growth{name, 0}});
  look_for_lost(members.id);
  return true;
}

/// Gives up the groups that this node has not opened for this call.
void Groups::drop_tries(Joining& joining) {
  const base::Operation* const call = joining.caller.call.get();
  const base::Status why(MV_ECANCELED, "the call that joins a group has ended");
  const auto is_mine = [call](const auto& entry) { return entry.second.caller.call.get() == call; };
  while (true) {
    if (const auto opening = std::ranges::find_if(openings_, is_mine); opening != openings_.end()) {
      fail_opening(opening->first, why);
    } else if (const auto shrinking = std::ranges::find_if(shrinkings_, is_mine); shrinking != shrinkings_.end()) {
      const GroupRef group = shrinking->second.group;
      group->agreement().give_up(why);
    } else {
      break;
    }
  }
  for (const GroupRef& group : std::exchange(joining.tried, {})) close(group, base::error(MV_EPEERLOST, "it has given up joining: {}", why.text()));
}

/// The end of the call, however it ends. The members need not wait for this node any more.
void Groups::end_join(const std::string& name, const base::Result<GroupRef>& result) {
  const auto found = joinings_.find(name);
  if (found == joinings_.end()) return;
  Joining joining = std::move(found->second);
  joinings_.erase(found);
  drop_tries(joining);
  for (const cluster::Member* worker : cluster_.view().workers()) tell_wish(worker->peer, name, false);
  joining.opened(result);
}

void Groups::expire_joins(base::Nanos now) {
  std::vector<std::string> late, invited;
  for (const auto& [name, joining] : joinings_) {
    if (joining.caller.call->deadline() <= now) late.push_back(name);
    if (joining.invited) invited.push_back(name);
  }
  for (const std::string& name : late)
    end_join(name, base::error(MV_ETIMEOUT, "no group has grown by the name \"{}\": its members take this process in with mv_group_grow()", name));
  for (const std::string& name : invited)
    if (joinings_.contains(name)) try_invitation(name);
}

}  // namespace mv::collective
