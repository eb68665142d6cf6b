#pragma once
// Requests to one server for which there was no room yet.

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/rpc/pending.hpp"

namespace mv::rpc {

/// Says which request is sent next: the most urgent one, of several the earliest, but those of one queue in their order, and nothing past
/// one of queue 0. Numbers are given when requests leave, so the server sees nothing of this.
///
/// A get may wait at the server for another worker's changes, and these behind gets that wait there for changes of ours. So what has no
/// room holds up its own queue only, and a get that changes wait behind needs no room: every change is sent in the end.
class Backlog {
 public:
  bool empty() const { return urgent_.empty() && turns_.empty() && rest_.empty(); }
  void push(Call call);
  /// The next request for which there is room, if any.
  std::optional<Call> take(const std::function<bool(const Call&)>& has_room);
  /// Takes a request out; null if it is not there.
  PendingRef erase(const Pending* pending);
  std::vector<PendingRef> clear();

 private:
  struct QueuedCall {
    uint64_t number;  ///< in the order of arrival
    Call call;
  };
  struct Queue {
    std::deque<QueuedCall> calls;
    size_t changes = 0;  ///< of them
  };
  enum class CallKind { kChange, kGet, kGetBeforeChange };
  /// The first request of a queue.
  struct Turn {
    CallKind kind;
    int64_t urgency;  ///< the priority's negative
    uint64_t number;
    uint64_t queue;
    auto operator<=>(const Turn&) const = default;
  };

  static Turn turn_of(uint64_t number, const Queue& queue);
  void add(Call call);
  std::optional<Turn> next(CallKind kind, const std::function<bool(const Call&)>& has_room) const;
  Call remove(uint64_t queue, std::deque<QueuedCall>::iterator which);
  void refill();

  std::deque<Call> urgent_;  ///< those that overtake
  std::unordered_map<uint64_t, Queue> queues_;  ///< none of them empty
  std::set<Turn> turns_;                      ///< of each queue
  std::deque<Call> rest_;                     ///< begins with a request of queue 0, or is empty
  uint64_t next_number_ = 0;
};

}  // namespace mv::rpc
