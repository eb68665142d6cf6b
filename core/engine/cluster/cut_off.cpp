#include "engine/cluster/cut_off.hpp"

#include <algorithm>
#include <vector>

#include "base/log.hpp"

namespace mv::cluster {

void CutOff::cut_off(const base::Status& why) {
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

/// This node is cut off for good: the others must not wait for it. No process can confirm any more that the workers that
/// this node has lost are lost, and calls may wait for them here. So it declares them lost itself, after it has made sure
/// that no other process learns of that.
void CutOff::depose() {
  standing_.set_deposed();
  owner_.on_deposed();
  std::vector<base::Peer> others;
  for (const auto& [peer, contact] : contacts_)
    if (contact.connected && roster_.is_member(peer)) others.push_back(peer);
  for (const base::Peer peer : others) {
    departure_.send_abort(peer, standing_.why_cut_off().text());
    link_.close(peer);
  }
  for (const base::Peer peer : others) lose_(peer, standing_.why_cut_off());
  for (const Member& member : roster_.view().members)
    if (member.is_worker() && member.state == MemberState::kLost && !member.drained) owner_.on_worker_lost(member, base::Status(MV_EPEERLOST, member.why));
}

bool CutOff::is_in(const View& newer) {
  const Member* const self = newer.find(roster_.self().peer);
  if (standing_.is_drained() || (self != nullptr && (self->drained || !self->is_out))) return true;
  const auto why = base::error(MV_EPEERLOST, "the other processes have declared this one lost, and continue without it{}", self != nullptr ? ": " + self->why : "");
  declared_lost(why);
  return false;
}

void CutOff::declared_lost(const base::Status& why) {
  if (!standing_.is_cut_off()) {
    standing_.set_deposed();
    cut_off(why);
  } else if (!standing_.is_to_be_deposed()) {  // it was cut off before
    depose();
    owner_.on_cut_off(why);
  }
}

void CutOff::lost(const Member& member) {
  if (standing_.is_cut_off() && !standing_.is_to_be_deposed() && roster_.is_undecided_loss(member)) depose();
}

bool CutOff::reconnect() {
  if (!standing_.is_cut_off()) return true;
  if (standing_.is_to_be_deposed()) return false;
  standing_.reconnect();
  barrier_.close({});
  return true;
}

}  // namespace mv::cluster
