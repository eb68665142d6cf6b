#include "engine/rpc/backlog.hpp"

#include <algorithm>
#include <utility>

namespace mv::rpc {

Backlog::Turn Backlog::turn_of(uint64_t number, const Queue& queue) {
  const QueuedCall& first = queue.calls.front();
  const CallKind kind = !first.call.wants_answer ? CallKind::kChange : queue.changes > 0 ? CallKind::kGetBeforeChange : CallKind::kGet;
  return {kind, -first.call.priority, first.number, number};
}

void Backlog::push(Call call) {
  if (call.overtakes) return urgent_.push_back(std::move(call));
  if (call.queue == 0 || !rest_.empty())
    rest_.push_back(std::move(call));
  else
    add(std::move(call));
}

void Backlog::add(Call call) {
  const uint64_t number = call.queue;
  Queue& queue = queues_[number];
  if (!queue.calls.empty()) turns_.erase(turn_of(number, queue));
  queue.changes += call.wants_answer ? 0 : 1;
  queue.calls.push_back({next_number_++, std::move(call)});
  turns_.insert(turn_of(number, queue));
}

/// The most urgent request of one kind. If it has no room, no other request of this kind is sent in its place.
std::optional<Backlog::Turn> Backlog::next(CallKind kind, const std::function<bool(const Call&)>& has_room) const {
  const auto first = turns_.lower_bound(Turn{kind, INT64_MIN, 0, 0});
  if (first == turns_.end() || first->kind != kind) return std::nullopt;
  if (kind != CallKind::kGetBeforeChange && !has_room(queues_.at(first->queue).calls.front().call)) return std::nullopt;
  return *first;
}

std::optional<Call> Backlog::take(const std::function<bool(const Call&)>& has_room) {
  if (!urgent_.empty()) {
    Call call = std::move(urgent_.front());
    urgent_.pop_front();
    return call;
  }
  std::optional<Turn> best;
  for (const CallKind kind : {CallKind::kChange, CallKind::kGet, CallKind::kGetBeforeChange}) {
    const auto one = next(kind, has_room);
    if (one && (!best || std::pair(one->urgency, one->number) < std::pair(best->urgency, best->number))) best = one;
  }
  if (best) return remove(best->queue, queues_.at(best->queue).calls.begin());
  if (!turns_.empty() || rest_.empty() || !has_room(rest_.front())) return std::nullopt;
  Call call = std::move(rest_.front());
  rest_.pop_front();
  refill();
  return call;
}

/// Moves the requests up to the next one of queue 0 from `rest_` into their queues.
void Backlog::refill() {
  while (!rest_.empty() && rest_.front().queue != 0) {
    add(std::move(rest_.front()));
    rest_.pop_front();
  }
}

Call Backlog::remove(uint64_t number, std::deque<QueuedCall>::iterator which) {
  const auto found = queues_.find(number);
  Queue& queue = found->second;
  turns_.erase(turn_of(number, queue));
  Call call = std::move(which->call);
  queue.calls.erase(which);
  queue.changes -= call.wants_answer ? 0 : 1;
  if (queue.calls.empty())
    queues_.erase(found);
  else
    turns_.insert(turn_of(number, queue));
  return call;
}

PendingRef Backlog::erase(const Pending* pending) {
  const auto is_it = [&](const Call& call) { return call.pending.get() == pending; };
  for (std::deque<Call>* calls : {&urgent_, &rest_}) {
    const auto found = std::ranges::find_if(*calls, is_it);
    if (found == calls->end()) continue;
    PendingRef ended = std::move(found->pending);
    const bool opens = calls == &rest_ && found == rest_.begin();
    calls->erase(found);
    if (opens) refill();
    return ended;
  }
  for (auto& [number, queue] : queues_) {
    const auto found = std::ranges::find_if(queue.calls, [&](const QueuedCall& waiting) { return is_it(waiting.call); });
    if (found != queue.calls.end()) return remove(number, found).pending;
  }
  return nullptr;
}

std::vector<PendingRef> Backlog::clear() {
  std::vector<QueuedCall> waiting;
  for (auto& [number, queue] : queues_) std::ranges::move(queue.calls, std::back_inserter(waiting));
  std::ranges::sort(waiting, {}, &QueuedCall::number);
  std::vector<PendingRef> ended;
  for (Call& call : urgent_) ended.push_back(std::move(call.pending));
  for (QueuedCall& one : waiting) ended.push_back(std::move(one.call.pending));
  for (Call& call : rest_) ended.push_back(std::move(call.pending));
  *this = Backlog();
  return ended;
}

}  // namespace mv::rpc
