// Decided views, and changes of the master.

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "engine/cluster/cluster.hpp"

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
  roster_.set_meets_master(!roster_.is_kept() && !mine && !contacts_.is_connected(roster_.master()) && (member == nullptr || member->state != MemberState::kLost));
  if (!roster_.is_kept()) return;
  if (mine) return barrier_.take_over(newer.active_workers());
  newcomers_.on_new_master();
  const auto why = base::error(MV_EPEERLOST, "{} is the master now", roster_.view().name(roster_.master()));
  held_requests_.fail_all(base::Status(MV_EDISAGREE, why.text()));
  barrier_.close(why);
  decisions_.drop(why);
  decisions_.stop_waiting();
}

/// The new master is known, and the view is applied: repeats there what the former one has not answered.
void Cluster::follow_master() {
  if (roster_.is_master()) {
    if (!roster_.is_kept()) role_transfer_.take();
    barrier_.follow(self_.peer, calls_.passed(), calls_.told());
    if (roster_.is_kept()) endings_.decide_noticed();
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
  if (election_.is_over(now)) cut_off_.cut_off(base::Status(MV_EPEERLOST, election_.why_no_master()));
  if (decisions_.is_to_tell(now)) heartbeat_.ping_members();
  if (decisions_.is_undecided() && now >= decisions_.patience_until() && !standing_.is_cut_off()) cut_off_.cut_off(base::Status(MV_EPEERLOST, decisions_.why_undecided()));
}

}  // namespace mv::cluster
