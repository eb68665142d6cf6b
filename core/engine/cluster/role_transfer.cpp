#include "engine/cluster/role_transfer.hpp"

#include <vector>

#include "base/log.hpp"

namespace mv::cluster {

void RoleTransfer::give(base::Peer to) {
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

void RoleTransfer::take() {
  View& view = roster_.view();
  barrier_.take_over(view.active_workers());
  ++view.epoch;  // this node's own view, in which more may have finished than in the one that it got: everybody gets all of it
  publisher_.begin();
  for (Member& known : view.members) {
    if (known.state == MemberState::kLost && !known.is_out) endings_.lost(known, known.is_worker(), base::Status(MV_EPEERLOST, known.why));
    if (roster_.needs(known)) connector_.meet(known.peer);
  }
  publisher_.publish();
}

}  // namespace mv::cluster
