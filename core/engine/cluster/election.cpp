#include "engine/cluster/election.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/cluster/patience.hpp"
#include "engine/cluster/succession.hpp"

namespace mv::cluster {

using namespace std::chrono_literals;

namespace {
/// Between two attempts to tell the servers of the newest view, while there is no master.
constexpr base::Nanos kTellEvery = 500ms;
/// Between the attempts of two servers that could take the place of the master.
constexpr base::Nanos kStagger = 150ms;
}  // namespace

bool Election::can_replace_master() const {
  std::set<base::Peer> voters;
  for (const Member& member : roster_.decided().members) {
    const Member* const here = roster_.view().find(member.peer);  // null: this node has not come to it yet in a new view
    if (member.votes && (here == nullptr || here->state != MemberState::kLost) && !(member.peer == roster_.master() && !roster_.is_master())) voters.insert(member.peer);
  }
  return keeping_.is_quorum(voters);
}

void Election::await_master(const base::Status& why) {
  if (!roster_.is_kept() || roster_.is_master() || standing_.is_cut_off() || standing_.phase() != Phase::kReady || roster_.view().workers_gone()) return;
  master_lost_ = why;
  if (tell_at_ == base::kNever) tell_at_ = clock_.now();
  if (awaited_until_ == base::kNever) awaited_until_ = base::after(clock_.now(), patience_without_decision(roster_.self()));
  // Of two voters, the other one can do nothing; else a newer view may be on its way, which has other voters.
  const auto voters = std::ranges::count_if(roster_.decided().members, [](const Member& member) { return member.votes; });
  if (!can_replace_master()) awaited_until_ = std::min(awaited_until_, voters > 2 ? base::after(clock_.now(), roster_.self().heartbeat_timeout) : clock_.now());
  const Member* const self = roster_.own();
  if (!self->is_server() || elect_at_ != base::kNever) return;
  const auto ahead = std::ranges::count_if(roster_.view().members, [&](const Member& member) {
    return member.is_server() && member.rank < self->rank && member.peer != roster_.master() && member.state != MemberState::kLost;
  });
  elect_at_ = clock_.now() + ahead * kStagger;
}

void Election::stand() {
  View next = roster_.decided();
  next.master = roster_.self().peer;
  for (const Member& known : roster_.view().members) {
    Member* const member = next.find(known.peer);
    if (member == nullptr) continue;
    if (known.state == MemberState::kFinished && member->state == MemberState::kHere) member->state = MemberState::kFinished;
    const bool is_lost = known.peer == roster_.master() || (known.state == MemberState::kLost && member->state != MemberState::kLost);
    if (is_lost) (void)lose(next, known.peer, roster_.self().replicas, known.peer == roster_.master() ? master_lost_.text() : known.why);
  }
  ++next.epoch;
  name_voters(next);
  const bool could_be_master = std::exchange(may_be_master_, true);
  keeping_.write(next, [this, next, could_be_master](const base::Status& status) {
    if (!status.ok()) {
      if (status.code() != MV_EUNREACHABLE && !could_be_master) may_be_master_ = false;
      return;
    }
    if (next.epoch > roster_.decided().epoch) return decisions_.hold(next);
    decisions_.write_next();  // another server has read it, and told this one earlier
  });
}

/// A keeper outside of the cluster describes its own trouble.
std::string Election::why_no_master() const {
  if (!can_replace_master())
    return fmt::format("{}, and of the processes that decide about the members too few are left to choose a new master", master_lost_.text());
  const base::Status trouble = keeping_.trouble();
  return fmt::format("{}, and no other server could take its place as master within {:.3g} s{}{}", master_lost_.text(),
                     base::seconds(patience_without_decision(roster_.self())), trouble.ok() ? "" : ": ", trouble.ok() ? "" : trouble.text());
}

void Election::tick(base::Nanos now) {
  if (now >= tell_at_) {  // the master may have been lost before each server had the last view
    tell_at_ = clock_.now() + kTellEvery;
    keeping_.tell_servers();
  }
  if (now >= elect_at_) {
    elect_at_ = base::kNever;
    keeping_.read_soon();
  }
}

}  // namespace mv::cluster
