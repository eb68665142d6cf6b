#include "engine/table/gates/sync_gate.hpp"

#include <algorithm>

namespace mv::table {

namespace {
/// Payload in flight of the sender whose turn it is, and of the next one, so that the link never idles.
constexpr uint64_t kTurnBytes = 4 << 20;
constexpr uint64_t kNextBytes = 1 << 20;
}  // namespace

void SyncGate::set_workers(std::vector<std::string> names) {
  workers_.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) workers_[i].name = std::move(names[i]);
}

void SyncGate::change(size_t worker, const rpc::Asked& asked, Count count, uint32_t of, uint64_t bytes, bool data_here) {
  if (!broken_.ok()) return owner_.fail_gated(asked, broken_);
  Worker& w = workers_[worker];
  if (count.index >= w.latest.index) w.latest = {count.round, count.index + 1};
  auto place = w.changes.end();
  while (place != w.changes.begin() && std::prev(place)->count.index > count.index) --place;
  w.changes.insert(place, {asked, count, of, bytes, false, data_here});
  check_step(w, count, false);
  advance();
}

bool SyncGate::follow(size_t worker, const rpc::Asked& asked) {
  Worker& w = workers_[worker];
  if (w.changes.empty() && w.followers.empty()) return false;
  w.followers.push_back({asked, w.changes.empty() ? w.applied : w.changes.back().count.index + 1});
  return true;
}

void SyncGate::data(size_t worker, const rpc::Asked& asked) {
  for (Change& change : workers_[worker].changes)
    if (change.asked == asked) change.data_here = true;
  advance();
}

void SyncGate::get(size_t worker, const rpc::Asked& asked, Count count) {
  if (!broken_.ok()) return owner_.fail_gated(asked, broken_);
  Worker& w = workers_[worker];
  w.gets.push_back({asked, count});
  w.closed[count.round] = count.index;
  check_step(w, count, true);
  advance();
}

void SyncGate::got(size_t worker, uint64_t round) {
  Worker& w = workers_[worker];
  if (round >= w.got) w.got_early.insert(round);
  while (w.got_early.erase(w.got) > 0) ++w.got;
  const uint64_t least = least_got();
  for (Worker& other : workers_) other.closed.erase(other.closed.begin(), other.closed.lower_bound(least));
  advance();
}

bool SyncGate::withdraw(size_t worker, const rpc::Asked& asked, std::string* missing) {
  Worker& w = workers_[worker];
  const auto get = std::find_if(w.gets.begin(), w.gets.end(), [&](const Get& g) { return g.asked == asked; });
  if (get != w.gets.end()) {
    *missing = names_of(missing_for(w, get->count, true));
    w.closed.erase(get->count.round);
    w.gets.erase(get);
    return true;
  }
  const auto change = std::find_if(w.changes.begin(), w.changes.end(), [&](const Change& c) { return c.asked == asked; });
  if (change == w.changes.end()) return false;
  // All chunks of an add are withdrawn, or none: once any has arrived or is applied, the rest must follow.
  const uint64_t index = change->count.index;
  const bool begun = (w.applied == index && w.chunks > 0) || std::any_of(w.changes.begin(), w.changes.end(), [&](const Change& c) {
                       return c.count.index == index && c.data_here;
                     });
  if (begun) return false;
  *missing = names_of(missing_for(w, change->count, false));
  if (missing->empty()) *missing = fmt::format("{} has not sent the values", w.name);
  w.latest.index = std::min(w.latest.index, index);
  w.changes.erase(change);
  // If the add comes again, it comes after the changes that followed it: its outcome was reported as unknown.
  for (Follower& follower : w.followers)
    if (follower.adds == index + 1) follower.adds = index;
  advance();
  return true;
}

void SyncGate::finished(size_t worker) {
  workers_[worker].active = false;
  advance();
}

void SyncGate::lost(size_t worker, const base::Status& why) {
  workers_[worker].active = false;
  if (broken_.ok()) fail_all(base::error(MV_EPEERLOST, "table \"{}\" in sync mode: {}", table_, why.text()));
}

void SyncGate::joined(size_t worker) {
  Worker& w = workers_[worker];
  static_cast<Progress&>(w) = {.got = next_.round, .got_early = {}, .applied = next_.index, .closed = {}, .latest = next_};
  advance();
}

void SyncGate::begins(size_t worker, Count count) {
  Worker& w = workers_[worker];
  if (w.active && (count.round < w.got || count.index < w.applied)) return;
  static_cast<Progress&>(w) = {.got = count.round, .got_early = {}, .applied = count.index, .closed = {}, .latest = count};
  advance();
}

uint64_t SyncGate::least_got() const {
  uint64_t least = UINT64_MAX;
  for (const Worker& w : workers_)
    if (w.active) least = std::min(least, w.got);
  return least;
}

/// The active workers; the one with the next add comes first.
std::vector<SyncGate::Worker*> SyncGate::order() {
  std::vector<Worker*> order;
  for (Worker& w : workers_)
    if (w.active) order.push_back(&w);
  std::stable_sort(order.begin(), order.end(), [](const Worker* a, const Worker* b) { return a->applied < b->applied; });
  return order;
}

void SyncGate::advance() {
  if (advancing_) return;  // owner calls may lead back here; the loop below checks again anyway
  advancing_ = true;
  while (broken_.ok() && (apply_follower() || apply_turn() || serve_one())) {
  }
  if (broken_.ok()) give_grants();
  advancing_ = false;
}

/// Applies the next chunk of the worker whose turn it is; false if it has not arrived.
bool SyncGate::apply_turn() {
  Worker* turn = nullptr;
  for (Worker& w : workers_)
    if (w.active && (turn == nullptr || w.applied < turn->applied)) turn = &w;
  if (turn == nullptr || turn->changes.empty()) return false;
  const Change& front = turn->changes.front();
  if (!front.data_here || front.count.index != turn->applied || front.count.round > least_got()) return false;
  const rpc::Asked asked = front.asked;
  if (++turn->chunks == front.of) {
    turn->chunks = 0;
    ++turn->applied;
  }
  turn->changes.pop_front();
  owner_.apply_change(asked);
  return true;
}

/// Applies a change that followed applied adds: it comes before the worker's next add.
bool SyncGate::apply_follower() {
  for (Worker& w : workers_) {
    if (w.followers.empty() || w.followers.front().adds > w.applied) continue;
    const rpc::Asked asked = w.followers.front().asked;
    w.followers.pop_front();
    owner_.apply_change(asked);
    return true;
  }
  return false;
}

void SyncGate::give_grants() {
  const uint64_t least = least_got();
  uint64_t allowance = kTurnBytes;
  for (Worker* w : order()) {
    uint64_t under_way = 0;
    for (Change& change : w->changes) {
      if (change.count.round > least) break;
      if (under_way > 0 && under_way + change.bytes > allowance) break;
      under_way += change.bytes;
      if (change.data_here || std::exchange(change.granted, true)) continue;
      owner_.grant_change(change.asked);
    }
    if (allowance == kNextBytes) return;
    allowance = kNextBytes;
  }
}

bool SyncGate::serve_one() {
  uint64_t least = UINT64_MAX;
  for (const Worker& w : workers_)
    if (w.active) least = std::min(least, w.applied);
  for (Worker& w : workers_) {
    const auto ready = std::find_if(w.gets.begin(), w.gets.end(), [&](const Get& g) { return g.count.index <= least; });
    if (ready == w.gets.end()) continue;
    const rpc::Asked asked = ready->asked;
    if (ready->count.round >= next_.round) next_ = {ready->count.round + 1, ready->count.index};
    w.gets.erase(ready);
    owner_.serve_get(asked);
    return true;
  }
  return false;
}

void SyncGate::check_step(const Worker& worker, Count count, bool is_get) {
  for (const Worker& other : workers_) {
    if (&other == &worker || !other.active || !broken_.ok()) continue;
    const auto closed = other.closed.find(count.round);
    if (closed != other.closed.end() && (is_get ? closed->second != count.index : closed->second <= count.index))
      fail_all(base::error(MV_EOUTOFSTEP, "table \"{}\": {} made {} adds before its get number {}, {} made {}; in sync mode, all workers must make the same calls",
                           table_, other.name, closed->second, count.round + 1, worker.name, count.index + (is_get ? 0 : 1)));
    else if (is_get && other.latest.round == count.round && other.latest.index > count.index)
      fail_all(base::error(MV_EOUTOFSTEP, "table \"{}\": {} made {} adds before its get number {}, {} made at least {}; in sync mode, all workers must make the same calls",
                           table_, worker.name, count.index, count.round + 1, other.name, other.latest.index));
  }
}

void SyncGate::fail_all(const base::Status& why) {
  broken_ = why;
  for (Worker& w : workers_) {
    for (const Change& change : std::exchange(w.changes, {})) owner_.fail_gated(change.asked, why);
    for (const Follower& follower : std::exchange(w.followers, {})) owner_.fail_gated(follower.asked, why);
    for (const Get& get : std::exchange(w.gets, {})) owner_.fail_gated(get.asked, why);
  }
}

bool SyncGate::is_between_adds() const {
  return std::ranges::all_of(workers_, [](const Worker& w) { return w.chunks == 0; });
}

std::vector<SyncGate::Progress> SyncGate::state() const { return {workers_.begin(), workers_.end()}; }

void SyncGate::restore(const std::vector<Progress>& workers, const base::Status& out_of_step, Count next) {
  for (size_t i = 0; i < workers_.size() && i < workers.size(); ++i) static_cast<Progress&>(workers_[i]) = workers[i];
  broken_ = out_of_step;
  next_ = next;
}

bool SyncGate::awaits_add(size_t worker, uint64_t index) const {
  if (workers_[worker].applied == index && workers_[worker].chunks > 0) return true;
  return std::ranges::any_of(workers_, [&](const Worker& w) {
    return std::ranges::any_of(w.changes, [&](const Change& change) { return change.count.index >= index; }) ||
           std::ranges::any_of(w.gets, [&](const Get& get) { return get.count.index > index; });
  });
}

bool SyncGate::is_ready_or_awaits_get(Count count) const {
  const bool ready = std::ranges::all_of(workers_, [&](const Worker& w) { return !w.active || w.applied >= count.index; });
  return ready || std::ranges::any_of(workers_, [&](const Worker& w) {
    return std::ranges::any_of(w.changes, [&](const Change& change) { return change.count.round > count.round; });
  });
}

std::vector<GateWait> SyncGate::waits() const {
  using cluster::WaitKind;
  std::vector<GateWait> waits;
  for (const Worker& w : workers_) {
    for (const Get& get : w.gets) waits.push_back({WaitKind::kGet, get.asked, get.count.round + 1, missing_for(w, get.count, true)});
    if (!w.gets.empty() || w.changes.empty()) continue;
    const Change& next = w.changes.front();
    waits.push_back({WaitKind::kAdd, next.asked, next.count.index + 1, missing_for(w, next.count, false)});
  }
  return waits;
}

Tally SyncGate::tally(size_t worker) const { return {static_cast<uint32_t>(worker), workers_[worker].applied, workers_[worker].got, 0}; }

/// For a get: the workers that have not made enough adds. For an add: the workers that have not made the adds before
/// it, or not received the gets before it. A worker whose add has arrived and only waits for its turn is named only if
/// there are no others.
std::vector<GateWait::Missing> SyncGate::missing_for(const Worker& waiter, Count count, bool is_get) const {
  std::vector<GateWait::Missing> missing, under_way;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& w = workers_[i];
    if (!w.active || (!is_get && &w == &waiter)) continue;
    const uint64_t adds = is_get || &w > &waiter ? count.index : count.index + 1;
    const uint64_t made = std::max(w.applied, w.latest.index);
    if (made < adds)
      missing.push_back({i, fmt::format("has made {} of {} adds", made, adds)});
    else if (w.got < count.round)
      missing.push_back({i, fmt::format("has made {} of {} gets", w.got, count.round)});
    else if (w.applied < adds)
      under_way.push_back({i, fmt::format("has {} of {} adds under way", made - w.applied, adds)});
  }
  return missing.empty() ? under_way : missing;
}

std::string SyncGate::names_of(const std::vector<GateWait::Missing>& missing) const {
  std::string names;
  for (const auto& [worker, what] : missing) names += fmt::format("{}{} {}", names.empty() ? "" : ", ", workers_[worker].name, what);
  return names;
}

}  // namespace mv::table
