#include "engine/cluster/barrier.hpp"

#include <algorithm>

namespace mv::cluster {

namespace {

constexpr size_t kNamed = 8;  ///< missing workers in a message

}  // namespace

void Barrier::enter(const rpc::Asked& asked, base::Nanos now) {
  const Member* member = view_.find(asked.client);
  if (member == nullptr || !member->is_worker())
    return rpc_.fail(asked, base::error(MV_ESTATE, "only workers take part in barriers"));
  if (auto& untold = untold_[asked.client]; !untold.empty()) {
    rpc_.fail(asked, untold.front());
    return untold.pop_front();
  }
  given_up_.erase(asked.client);
  waiting_[asked.client].push_back({asked, now});
  settle();
}

bool Barrier::withdraw(const rpc::Asked& asked, const std::function<std::string(base::Peer)>& doing) {
  auto& mine = waiting_[asked.client];
  const auto found = std::find_if(mine.begin(), mine.end(), [&](const Arrival& w) { return w.asked == asked; });
  if (found == mine.end()) return false;
  std::string missing;
  size_t named = 0;
  const auto peers = awaited();  // before the caller's arrival is erased: it is not one of them
  mine.erase(found);
  given_up_.insert(asked.client);
  for (const base::Peer peer : peers) {
    if (++named > kNamed) break;
    missing += fmt::format("{}{}, which {}", missing.empty() ? "" : "; ", view_.name(peer), doing(peer));
  }
  if (peers.size() > kNamed) missing += fmt::format("; and {} more", peers.size() - kNamed);
  rpc_.fail(asked, base::error(MV_ETIMEOUT, "barrier: still waiting for {}", missing));
  return true;
}

void Barrier::finished(base::Peer peer) {
  waiting_.erase(peer);
  untold_.erase(peer);
  given_up_.erase(peer);
  settle();
}

void Barrier::lost(base::Peer peer, const base::Status& why) {
  waiting_.erase(peer);
  untold_.erase(peer);
  given_up_.erase(peer);
  for (const Member* worker : view_.workers()) {
    if (worker->state != State::kHere) continue;
    auto& theirs = waiting_[worker->peer];
    if (theirs.empty()) untold_[worker->peer].push_back(why);
    for (const Arrival& waiting : std::exchange(theirs, {})) rpc_.fail(waiting.asked, why);
  }
}

void Barrier::settle() {
  const auto workers = view_.workers();
  const auto there = [&](const Member* w) { return w->state != State::kHere || !waiting_[w->peer].empty(); };
  while (std::all_of(workers.begin(), workers.end(), there)) {
    bool any = false;
    for (const Member* worker : workers) {
      auto& theirs = waiting_[worker->peer];
      if (theirs.empty()) continue;
      any = true;
      const rpc::Asked asked = theirs.front().asked;
      theirs.pop_front();
      rpc_.answer(asked, builder_.answer({}));
    }
    if (!any) return;
  }
}

std::vector<Wait> Barrier::waits(base::Nanos now) const {
  std::vector<Awaited> missing;
  for (const base::Peer peer : awaited()) missing.push_back({peer, "has not arrived"});
  std::vector<Wait> waits;
  for (const auto& [peer, theirs] : waiting_)
    for (const Arrival& waiting : theirs) waits.push_back({WaitKind::kBarrier, peer, "", 0, now - waiting.since, now - waiting.since, missing});
  return waits;
}

std::vector<base::Peer> Barrier::awaited() const {
  std::vector<base::Peer> awaited;
  for (const Member* worker : view_.workers()) {
    const auto theirs = waiting_.find(worker->peer);
    if (worker->state == State::kHere && (theirs == waiting_.end() || theirs->second.empty())) awaited.push_back(worker->peer);
  }
  return awaited;
}

}  // namespace mv::cluster
