// MemberNode: reports the other members, the transport to each, and its round-trip time.

#include <algorithm>

#include "api/node/member_node.hpp"

namespace mv::api {

namespace {

/// The first answer of a sleeping peer includes its wake-up; the last one shows the round trip of an awake peer.
constexpr int kQuestions = 4;
constexpr base::Nanos kPatience = std::chrono::seconds(1);
constexpr base::Nanos kLookAgain = std::chrono::milliseconds(1);

}  // namespace

base::Result<std::vector<PeerReport>> MemberNode::examine_peers() {
  std::map<base::Peer, base::Nanos> shortest;
  if (const base::Status interrupted = ask_peers(shortest); !interrupted.ok()) return interrupted;
  std::vector<PeerReport> reports;
  runtime_.read_on_loop([&] {
    for (const cluster::Member& member : runtime_.member().cluster().view().members) {
      if (member.peer == runtime_.member().self() || member.is_vacant()) continue;
      PeerReport report = report_on(member);
      if (const auto found = shortest.find(member.peer); found != shortest.end()) report.round_trip = found->second;
      reports.push_back(std::move(report));
    }
  });
  return reports;
}

/// Connects with the peers that have not been needed so far, then asks each several times, or until kPatience has passed
/// while some do not connect or answer.
base::Status MemberNode::ask_peers(std::map<base::Peer, base::Nanos>& shortest) {
  cluster::Cluster& cluster = runtime_.member().cluster();
  size_t open = 0;
  const auto wait = [&](const auto& count_open) {
    const base::Nanos until = runtime_.loop().now() + kPatience;
    do {
      const transport::Driven driven = runtime_.loop().drive_until([] { return false; }, runtime_.loop().now() + kLookAgain);
      if (driven == transport::Driven::kInterrupted)
        return base::Status(MV_EINTR, "a signal interrupted the query of the other processes");
      if (driven == transport::Driven::kStopped || driven == transport::Driven::kBroken) return runtime_.ended();
      runtime_.on_loop([&] { open = count_open(); });
    } while (open > 0 && runtime_.loop().now() < until);
    return base::Status();
  };
  runtime_.on_loop([&] { cluster.connect_with_all(); });
  if (const base::Status ended = wait([&] { return cluster.unconnected(); }); !ended.ok()) return ended;
  open = 0;
  for (int question = 0; question < kQuestions && open == 0; ++question) {
    runtime_.on_loop([&] { cluster.ask_all(); });
    if (const base::Status ended = wait([&] { return cluster.contacts().unanswered(); }); !ended.ok()) return ended;
    runtime_.read_on_loop([&] {
      for (const cluster::Member& member : runtime_.member().cluster().view().members) {
        const auto took = cluster.contacts().round_trip(member.peer);
        if (!took || *took == base::kNever) continue;
        const auto [entry, is_new] = shortest.try_emplace(member.peer, *took);
        if (!is_new) entry->second = std::min(entry->second, *took);
      }
    });
  }
  return {};
}

PeerReport MemberNode::report_on(const cluster::Member& member) {
  const cluster::View& view = runtime_.member().cluster().view();
  const cluster::Member& self = *view.find(runtime_.member().self());
  PeerReport report;
  report.rank = member.rank;
  report.role = member.role;
  report.host = member.host;
  report.address = member.address;
  report.pid = member.pid;
  report.state = member.drained ? cluster::MemberState::kFinished : member.state;
  report.why_lost = member.why;
  report.same_host = member.host == self.host;
  const base::Peer master = runtime_.member().cluster().master();
  report.needed = member.peer == master || self.peer == master || view.need_each_other(self, member);
  const auto reach = runtime_.path_to(member.peer);
  if (!reach) return report;
  report.transport = reach->by;
  report.why_not_shm = reach->why_not_shm;
  report.cipher = reach->cipher;
  return report;
}

}  // namespace mv::api
