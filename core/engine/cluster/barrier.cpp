#include "engine/cluster/barrier.hpp"

#include <algorithm>
#include <utility>

namespace mv::cluster {

namespace {

constexpr size_t kNamed = 8;  ///< missing workers in a message

}  // namespace

void Barrier::enter(const rpc::Asked& asked, base::Nanos now) {
  const Member* member = view_.find(asked.client);
  if (member == nullptr || !member->is_worker())
    return rpc_.fail(asked, base::error(MV_ESTATE, "only workers take part in barriers"));
  if (!closed_.ok()) return rpc_.fail(asked, closed_);
  given_up_.erase(asked.client);
  if (followers_.empty() && owes(asked)) return;
  waiting_[asked.client].push_back({asked, now});
  settle();
}

/// Answers a request whose barrier is over for others.
bool Barrier::owes(const rpc::Asked& asked) {
  if (auto& untold = untold_[asked.client]; !untold.empty()) {
    rpc_.fail(asked, untold.front());
    untold.pop_front();
    return true;
  }
  uint64_t& behind = behind_[asked.client];
  if (behind == 0) return false;
  --behind;
  rpc_.answer(asked, builder_.answer({}));
  return true;
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
  gone(peer);
  settle();
}

void Barrier::gone(base::Peer peer) {
  waiting_.erase(peer);
  untold_.erase(peer);
  given_up_.erase(peer);
  behind_.erase(peer);
  if (followers_.erase(peer) > 0) catch_up();
}

void Barrier::lost(base::Peer peer, const base::Status& why) {
  gone(peer);
  tell_loss(why);
}

void Barrier::hold(bool on) {
  if (std::exchange(is_held_, on) && !on) settle();
}

void Barrier::take_over(const std::vector<base::Peer>& workers) {
  followers_.insert(workers.begin(), workers.end());
  closed_ = {};
}

void Barrier::follow(base::Peer worker, uint64_t passed, uint64_t told) {
  if (followers_.erase(worker) == 0) return;
  passed_by_[worker] = passed;
  for (uint64_t loss = told; loss < view_.losses; ++loss) untold_[worker].push_back(view_.loss(loss));
  catch_up();
}

/// All have said how far they are: those that are behind the others are let through.
void Barrier::catch_up() {
  if (!followers_.empty()) return;
  for (const auto& [worker, passed] : passed_by_) passed_ = std::max(passed_, passed);
  for (const auto& [worker, passed] : std::exchange(passed_by_, {})) behind_[worker] = passed_ - passed;
  for (auto& [worker, theirs] : waiting_)
    while (!theirs.empty() && owes(theirs.front().asked)) theirs.pop_front();
  settle();
}

void Barrier::close(const base::Status& why) {
  closed_ = why;
  for (auto& [worker, theirs] : std::exchange(waiting_, {}))
    for (const Arrival& waiting : theirs) rpc_.fail(waiting.asked, why);
}

void Barrier::tell_loss(const base::Status& why) {
  for (const Member* worker : view_.workers()) {
    if (worker->state != MemberState::kHere) continue;
    auto& theirs = waiting_[worker->peer];
    if (followers_.contains(worker->peer)) continue;  // it says itself what it was told
    if (theirs.empty() || !followers_.empty()) {
      untold_[worker->peer].push_back(why);
      continue;
    }
    rpc_.fail(theirs.front().asked, why);
    theirs.pop_front();
  }
}

void Barrier::settle() {
  if (is_held_ || !followers_.empty()) return;
  const auto workers = view_.workers();
  const auto there = [&](const Member* w) { return w->state != MemberState::kHere || !waiting_[w->peer].empty(); };
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
    ++passed_;
  }
}

std::vector<Wait> Barrier::waits(base::Nanos now) const {
  if (std::ranges::all_of(waiting_, [](const auto& entry) { return entry.second.empty(); })) return {};
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
    if (worker->state == MemberState::kHere && (theirs == waiting_.end() || theirs->second.empty())) awaited.push_back(worker->peer);
  }
  return awaited;
}

}  // namespace mv::cluster
