#include "engine/cluster/endings.hpp"

#include "engine/cluster/succession.hpp"

namespace mv::cluster {

void Endings::lost(Member& member, bool fails_barriers, const base::Status& why) {
  const base::Peer peer = member.peer;
  if (!roster_.is_kept()) {
    if (is_held_) return;
    if (relocation_.declare_out(member) || fails_barriers) {
      note_loss(roster_.view(), why.text());
      barrier_.lost(peer, why);
    }
    return publisher_.publish();
  }
  const Member* const before = roster_.decided().find(peer);
  if (before == nullptr || before->is_out || before->drained) return;
  if (roster_.decided().workers_gone() && !election_.can_replace_master()) return;  // the others end, too
  barrier_.gone(peer);
  decisions_.decide([peer, why, replicas = roster_.self().replicas](View& next) {
    const Member* const lost = next.find(peer);
    if (lost == nullptr || lost->is_out || lost->drained) return base::Status(MV_ESTATE, "");
    (void)lose(next, peer, replicas, why.text());
    return base::Status();
  });
}

void Endings::finished(base::Peer peer) {
  if (roster_.is_kept()) {
    decisions_.decide_end(peer);
    barrier_.finished(peer);
  } else if (!is_held_) {
    barrier_.finished(peer);
    publisher_.publish();
  }
}

void Endings::decide_noticed() {
  for (Member& known : roster_.view().members) {
    const Member* const member = roster_.decided().find(known.peer);
    if (member == nullptr || member->state != MemberState::kHere) continue;
    if (known.state == MemberState::kFinished) {
      decisions_.decide_end(known.peer);
      barrier_.finished(known.peer);
    }
    if (known.state == MemberState::kLost) lost(known, known.is_worker(), base::Status(MV_EPEERLOST, known.why));
  }
}

}  // namespace mv::cluster
