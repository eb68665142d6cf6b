#pragma once
// The changes of the membership that the program has not taken yet.

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/cluster/event.hpp"

namespace mv::api {

/// An event with the number of those that were dropped before it.
struct Told {
  cluster::MembershipEvent event;
  uint64_t dropped = 0;
};

/// Keeps the newest events. Any thread.
class MembershipQueue {
 public:
  static constexpr size_t kMost = 256;

  void push(const cluster::MembershipEvent& event) {
    const std::scoped_lock lock(mutex_);
    if (events_.size() == kMost) {
      events_.pop_front();
      ++dropped_;
    }
    events_.push_back(event);
    any_ = true;
  }
  std::optional<Told> pop() {
    const std::scoped_lock lock(mutex_);
    if (events_.empty()) return std::nullopt;
    Told told{std::move(events_.front()), std::exchange(dropped_, 0)};
    events_.pop_front();
    any_ = !events_.empty();
    return told;
  }
  /// Never locks.
  bool has_any() const { return any_.load(std::memory_order_acquire); }

 private:
  std::mutex mutex_;
  std::deque<cluster::MembershipEvent> events_;
  uint64_t dropped_ = 0;
  std::atomic<bool> any_{false};
};

}  // namespace mv::api
