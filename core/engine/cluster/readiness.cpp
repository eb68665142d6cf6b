#include "engine/cluster/readiness.hpp"

#include <utility>

namespace mv::cluster {

void Readiness::adopt(View first) {
  View& view = roster_.view();
  view = std::move(first);
  standing_.set_joined_epoch(view.epoch);
  roster_.set_told_gone(view.workers_gone());
  if (view.master != base::kNobody) roster_.set_master(view.master);
  calls_.begin(std::exchange(view.barriers, 0), view.losses);
  const Member* self = roster_.own();
  if (self == nullptr) return fail(base::error(MV_EPROTOCOL, "the master's list of members does not contain this process"));
  standing_.set_phase(Phase::kConnecting);
  if (roster_.is_master() || roster_.self().replicas > 0) publisher_.begin();
  if (roster_.self().replicas > 0) {
    roster_.set_decided(view);
    keeping_.begin();
  }
  owner_.on_view(view);
  for (const Member& member : view.members) {
    if (member.peer == roster_.self().peer) continue;
    if (contacts_.is_connected(member.peer))
      heartbeat_.ping(member.peer);
    else if (roster_.needs(member) && self->rank > member.rank)
      link_.dial(member.address);
  }
  strangers_.welcome();
  look_again();
}

void Readiness::look_again() {
  if (standing_.phase() != Phase::kConnecting) return;
  // Begins at the member that was missing before, because each of n members calls this.
  const size_t count = roster_.view().members.size();
  for (size_t i = 0; i < count && !standing_.is_drained(); ++i) {  // a server that has handed its tables over needs nobody any more
    const size_t place = (missing_ + i) % count;
    const Member& member = roster_.view().members[place];
    if (!roster_.needs(member) || contacts_[member.peer].epoch >= standing_.joined_epoch()) continue;
    missing_ = place;
    return;
  }
  standing_.set_phase(Phase::kReady);
  joining_.stop();
  connector_.stop();
  owner_.on_ready();
}

void Readiness::fail(const base::Status& why) {
  if (standing_.phase() == Phase::kReady || standing_.phase() == Phase::kFailed) return;
  standing_.set_phase(Phase::kFailed);
  joining_.stop();
  connector_.stop();
  founding_.fail_all(why);
  owner_.on_failed(why);
}

}  // namespace mv::cluster
