// What a group's operations wait for, and what happens when that takes too long.

#include <algorithm>
#include <utility>

#include "engine/collective/active.hpp"
#include "engine/collective/cost_text.hpp"
#include "engine/collective/note.hpp"
#include "engine/collective/transfers.hpp"

namespace mv::collective {

namespace {
constexpr const char *kHasCome = "has arrived, but has not done its part", *kHasNotCome = "has not arrived";
}  // namespace

std::string Group::tuning() const { return "by costs of messages: " + write_costs(setting_.costs); }

GroupState Group::report() const {
  const bool by_messages = !watcher_.look;
  const Elsewhere seen = by_messages ? Elsewhere{} : watcher_.look();
  const std::string by = reducer_ != nullptr ? "messages, " + reducer_->name() : "messages";
  return {members_.id, members_.peers, static_cast<uint32_t>(setting_.rank), by_messages ? by : "shm",
          by_messages ? shown(begun_) : seen.operations, broken_.text(), by_messages ? tuning() : seen.tuning};
}

std::vector<cluster::Wait> Group::waits() const {
  const base::Nanos now = clock_.now();
  std::vector<cluster::Wait> waits;
  const auto add = [&](std::string what, uint64_t op, base::Nanos since) -> cluster::Wait& {
    const base::Nanos age = std::max(base::Nanos{0}, now - since);
    return waits.emplace_back(cluster::Wait{cluster::WaitKind::kCollective, members_.peers[static_cast<size_t>(setting_.rank)], std::move(what), op, age, age, {}});
  };
  const auto await = [&](cluster::Wait& wait, uint32_t rank, const char* what) { wait.awaited.push_back({members_.peers[rank], what}); };
  for (const auto& [op, numbered] : numbers_) {
    if (numbered.active == nullptr) continue;
    cluster::Wait& wait = add(describe(numbered.active->running.signature()), shown(op), numbered.active->since);
    const int32_t awaited = numbered.active->running.execution().awaited();
    if (awaited == Step::kNone) continue;
    const auto reached = reached_.find(static_cast<uint32_t>(awaited));
    await(wait, static_cast<uint32_t>(awaited), reached != reached_.end() && reached->second >= op ? kHasCome : kHasNotCome);
  }
  if (drain_) {
    cluster::Wait& wait = add("a drain", shown(begun_ + 1), drain_->since);
    const auto found = numbers_.find(begun_ + 1);
    for (uint32_t rank = 0; rank < members_.peers.size(); ++rank)
      if (static_cast<int32_t>(rank) != setting_.rank && (found == numbers_.end() || !found->second.drainers.contains(rank))) await(wait, rank, kHasNotCome);
  }
  transfers_->add_waits(waits);
  if (!watcher_.look) return waits;
  const Elsewhere seen = watcher_.look();
  if (seen.awaited < 0 || static_cast<size_t>(seen.awaited) >= members_.peers.size()) return waits;
  await(add(seen.what, seen.operations, seen.since), static_cast<uint32_t>(seen.awaited), seen.has_come ? kHasCome : kHasNotCome);
  return waits;
}

base::Nanos Group::next_deadline() const {
  base::Nanos next = std::min(drain_ ? drain_->deadline : base::kNever, transfers_->next_deadline());
  for (const auto& [op, numbered] : numbers_) {
    if (numbered.active == nullptr) continue;
    const Running& running = numbered.active->running;
    const int32_t awaited = numbered.active->running.execution().awaited();
    next = std::min({next, running.deadline, awaited == Step::kNone || awaited == running.told ? base::kNever : running.look_at});
  }
  return next;
}

void Group::tick(base::Nanos now) {
  std::vector<uint64_t> ops;
  for (const auto& [op, numbered] : numbers_)
    if (numbered.active != nullptr) ops.push_back(op);
  for (const uint64_t op : ops) {
    const auto found = numbers_.find(op);
    if (found == numbers_.end()) continue;
    Active& active = *found->second.active;
    if (active.running.look_at <= now) notify_awaited(op, active, now);
    if (active.running.deadline <= now) expire(op, active, now);
  }
  transfers_->tick(now);
  expire_drain(now);
}

void Group::notify_awaited(uint64_t op, Active& active, base::Nanos now) {
  Running& running = active.running;
  const int32_t awaited = running.execution().awaited();
  const uint64_t moves = running.execution().moves();
  running.look_at = now + kLookAfter;
  if (std::exchange(running.moves_seen, moves) != moves || running.told == awaited || awaited == Step::kNone) return;
  running.told = awaited;
  const auto closed = closed_.find(static_cast<uint32_t>(awaited));
  if (closed != closed_.end() && closed->second == kUnknown)
    return break_group(base::error(MV_EPEERLOST, "{} has finished", name(static_cast<uint32_t>(awaited))), true);
  tell(static_cast<uint32_t>(awaited), wire::GroupWord::Waits, [&](Note& note) {
    note.op = op;
    note.signature = running.signature();
  });
}

std::string Group::missing(uint64_t op) const {
  std::string names;
  for (uint32_t rank = 0; rank < members_.peers.size(); ++rank) {
    const auto reached = reached_.find(rank);
    if (static_cast<int32_t>(rank) != setting_.rank && (reached == reached_.end() || reached->second < op))
      names += (names.empty() ? "" : ", ") + name(rank);
  }
  return names;
}

/// A rank has reported its progress. The operation expires as soon as all ranks have.
void Group::answered(uint32_t from) {
  for (auto& [op, numbered] : numbers_) {
    if (numbered.active == nullptr || !numbered.active->running.asked) continue;
    Running& running = numbered.active->running;
    if (running.unanswered.erase(from) > 0 && running.unanswered.empty()) running.deadline = std::min(running.deadline, clock_.now());
  }
}

void Group::expire(uint64_t op, Active& active, base::Nanos now) {
  Running& running = active.running;
  if (!std::exchange(running.asked, true)) {
    running.deadline = now + kLastWord;
    for (uint32_t rank = 0; rank < members_.peers.size(); ++rank)
      if (is_other(rank)) running.unanswered.insert(rank);
    return tell_all(wire::GroupWord::Asks, [&](Note& note) { note.op = op; });
  }
  const std::string names = missing(op);
  const int32_t awaited = running.execution().awaited();
  const std::string why = !names.empty()           ? "these have not arrived: " + names
                          : awaited != Step::kNone ? "it waits for " + name(static_cast<uint32_t>(awaited))
                          : running.is_handed_over() && reducer_ != nullptr ? reducer_->name() + " has not ended its all-reduce"
                                                   : "its data was not received";
  break_group(base::error(MV_ETIMEOUT, "operation {} of the group, {}: {} has given up; {}", shown(op), describe(running.signature()),
                        name(static_cast<uint32_t>(setting_.rank)), why), true);
}

}  // namespace mv::collective
