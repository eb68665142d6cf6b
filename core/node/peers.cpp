// Who else is in the cluster, by which road each is reached, and how fast it answers.

#include <algorithm>

#include "node/member_node.hpp"

namespace mv::node {

namespace {

/// The first answer of a peer that slept tells how long waking takes; a busy one's last how long it is when awake.
constexpr int kQuestions = 4;
constexpr base::Nanos kPatience = std::chrono::seconds(1);
constexpr base::Nanos kLookAgain = std::chrono::milliseconds(1);

}  // namespace

base::Result<std::vector<PeerReport>> MemberNode::examine_peers() {
  std::map<base::Peer, base::Nanos> shortest;
  if (const base::Status interrupted = ask_peers(shortest); !interrupted.ok()) return interrupted;
  std::vector<PeerReport> reports;
  read_on_loop([&] {
    for (const cluster::Member& member : member_->cluster().view().members) {
      if (member.peer == member_->self()) continue;
      PeerReport report = report_on(member);
      if (const auto found = shortest.find(member.peer); found != shortest.end()) report.round_trip = found->second;
      reports.push_back(std::move(report));
    }
  });
  return reports;
}

/// Several times, or until the patience with those that don't answer is over.
base::Status MemberNode::ask_peers(std::map<base::Peer, base::Nanos>& shortest) {
  const base::Nanos until = loop_.now() + kPatience;
  size_t unanswered = 0;
  for (int question = 0; question < kQuestions && unanswered == 0; ++question) {
    on_loop([&] { member_->cluster().ask_all(); });
    do {
      const io::Driven driven = loop_.drive_until([] { return false; }, loop_.now() + kLookAgain);
      if (driven == io::Driven::kInterrupted)
        return base::Status(MV_EINTR, "a signal came while the other processes were asked");
      if (driven == io::Driven::kStopped || driven == io::Driven::kBroken) return ended();
      on_loop([&] { unanswered = member_->cluster().unanswered(); });
    } while (unanswered > 0 && loop_.now() < until);
    read_on_loop([&] {
      for (const cluster::Member& member : member_->cluster().view().members) {
        const auto took = member_->cluster().round_trip(member.peer);
        if (!took || *took == base::kNever) continue;
        const auto [entry, is_new] = shortest.try_emplace(member.peer, *took);
        if (!is_new) entry->second = std::min(entry->second, *took);
      }
    });
  }
  return {};
}

PeerReport MemberNode::report_on(const cluster::Member& member) {
  const cluster::View& view = member_->cluster().view();
  const cluster::Member& self = *view.find(member_->self());
  PeerReport report;
  report.rank = member.rank;
  report.role = member.role;
  report.host = member.host;
  report.address = member.address;
  report.pid = member.pid;
  report.state = member.state == cluster::State::kHere       ? PeerReport::State::kHere
                 : member.state == cluster::State::kFinished ? PeerReport::State::kFinished
                                                             : PeerReport::State::kLost;
  report.why_lost = member.why;
  report.same_host = member.host == self.host;
  report.needed = member.rank == 0 || self.rank == 0 || view.need_each_other(self, member);
  const auto reach = router_->reach(member.peer);
  if (!reach) return report;
  report.road = reach->by;
  report.why_not_shm = reach->why_not_shm;
  return report;
}

}  // namespace mv::node
