#include "engine/rpc/backlog.hpp"

#include <algorithm>
#include <utility>

namespace mv::rpc {

Backlog::Turn Backlog::turn_of(uint64_t number, const Lane& lane) {
  const Waiting& first = lane.calls.front();
  const Kind kind = !first.call.wants_answer ? Kind::kChange : lane.changes > 0 ? Kind::kGetBeforeChange : Kind::kGet;
  return {kind, -first.call.priority, first.number, number};
}

void Backlog::push(Call call) {
  if (call.overtakes) return urgent_.push_front(std::move(call));
  if (call.lane == 0 || !rest_.empty())
    rest_.push_back(std::move(call));
  else
    add(std::move(call));
}

void Backlog::add(Call call) {
  const uint64_t number = call.lane;
  Lane& lane = lanes_[number];
  if (!lane.calls.empty()) turns_.erase(turn_of(number, lane));
  lane.changes += call.wants_answer ? 0 : 1;
  lane.calls.push_back({next_number_++, std::move(call)});
  turns_.insert(turn_of(number, lane));
}

/// Of one kind the first, which is the most urgent: where that has no room, the others do without.
std::optional<Backlog::Turn> Backlog::next(Kind kind, const std::function<bool(const Call&)>& has_room) const {
  const auto first = turns_.lower_bound(Turn{kind, INT64_MIN, 0, 0});
  if (first == turns_.end() || first->kind != kind) return std::nullopt;
  if (kind != Kind::kGetBeforeChange && !has_room(lanes_.at(first->lane).calls.front().call)) return std::nullopt;
  return *first;
}

std::optional<Call> Backlog::take(const std::function<bool(const Call&)>& has_room) {
  if (!urgent_.empty()) {
    Call call = std::move(urgent_.front());
    urgent_.pop_front();
    return call;
  }
  std::optional<Turn> best;
  for (const Kind kind : {Kind::kChange, Kind::kGet, Kind::kGetBeforeChange}) {
    const auto one = next(kind, has_room);
    if (one && (!best || std::pair(one->urgency, one->number) < std::pair(best->urgency, best->number))) best = one;
  }
  if (best) return remove(best->lane, lanes_.at(best->lane).calls.begin());
  if (!turns_.empty() || rest_.empty() || !has_room(rest_.front())) return std::nullopt;
  Call call = std::move(rest_.front());
  rest_.pop_front();
  refill();
  return call;
}

/// Whatever stood behind a request of lane 0 that has left, up to the next one.
void Backlog::refill() {
  while (!rest_.empty() && rest_.front().lane != 0) {
    add(std::move(rest_.front()));
    rest_.pop_front();
  }
}

Call Backlog::remove(uint64_t number, std::deque<Waiting>::iterator which) {
  const auto found = lanes_.find(number);
  Lane& lane = found->second;
  turns_.erase(turn_of(number, lane));
  Call call = std::move(which->call);
  lane.calls.erase(which);
  lane.changes -= call.wants_answer ? 0 : 1;
  if (lane.calls.empty())
    lanes_.erase(found);
  else
    turns_.insert(turn_of(number, lane));
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
  for (auto& [number, lane] : lanes_) {
    const auto found = std::ranges::find_if(lane.calls, [&](const Waiting& waiting) { return is_it(waiting.call); });
    if (found != lane.calls.end()) return remove(number, found).pending;
  }
  return nullptr;
}

std::vector<PendingRef> Backlog::clear() {
  std::vector<Waiting> waiting;
  for (auto& [number, lane] : lanes_) std::ranges::move(lane.calls, std::back_inserter(waiting));
  std::ranges::sort(waiting, {}, &Waiting::number);
  std::vector<PendingRef> ended;
  for (Call& call : urgent_) ended.push_back(std::move(call.pending));
  for (Waiting& one : waiting) ended.push_back(std::move(one.call.pending));
  for (Call& call : rest_) ended.push_back(std::move(call.pending));
  *this = Backlog();
  return ended;
}

}  // namespace mv::rpc
