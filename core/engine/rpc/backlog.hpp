#pragma once
// Requests to one server that wait for room in the window.

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/rpc/pending.hpp"

namespace mv::rpc {

/// A priority queue of unsent requests. The most urgent request is sent next, and the earliest of equally urgent ones.
/// Requests of one queue keep their order, and nothing overtakes a request of queue 0. A request gets its sequence
/// number when it is sent, so the reordering is invisible to the server.
///
/// Two workers' gets can deadlock on each other's queued changes: a get waits at the server for changes of another
/// worker, which are queued there behind a get that waits for changes of this one. To prevent that, a request without
/// room holds up only its own queue, and a get with changes behind it needs no room. Every change is sent eventually.
class Backlog {
 public:
  bool empty() const { return urgent_.empty() && turns_.empty() && rest_.empty(); }
  void push(Call call);
  /// Removes and returns the next request for which there is room, if any.
  std::optional<Call> take(const std::function<bool(const Call&)>& has_room);
  /// Removes a request; null if it is not in the backlog.
  PendingRef erase(const Pending* pending);
  std::vector<PendingRef> clear();

 private:
  struct QueuedCall {
    uint64_t number;  ///< in the order of arrival
    Call call;
  };
  struct Queue {
    std::deque<QueuedCall> calls;
    size_t changes = 0;  ///< number of changes among `calls`
  };
  enum class CallKind { kChange, kGet, kGetBeforeChange };
  /// The first request of a queue.
  struct Turn {
    CallKind kind;
    int64_t urgency;  ///< the negated priority
    uint64_t number;
    uint64_t queue;
    auto operator<=>(const Turn&) const = default;
  };

  static Turn turn_of(uint64_t number, const Queue& queue);
  void add(Call call);
  std::optional<Turn> next(CallKind kind, const std::function<bool(const Call&)>& has_room) const;
  Call remove(uint64_t queue, std::deque<QueuedCall>::iterator which);
  void refill();

  std::deque<Call> urgent_;                     ///< requests with Call::overtakes
  std::unordered_map<uint64_t, Queue> queues_;  ///< never contains an empty queue
  std::set<Turn> turns_;                        ///< one for each queue
  std::deque<Call> rest_;                       ///< begins with a request of queue 0, or is empty
  uint64_t next_number_ = 0;
};

}  // namespace mv::rpc
