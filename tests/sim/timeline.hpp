#pragma once
// Virtual time: all events, in one order for one seed.

#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "random.hpp"

namespace mv::sim {

using base::Nanos;

/// The clock, the future events, and the violations so far.
class Timeline final : public base::Clock {
 public:
  Nanos now() const override { return now_; }

  void at(Nanos when, std::function<void()> work) { events_.push({std::max(when, now_), next_++, std::move(work)}); }
  void after(Nanos span, std::function<void()> work) { at(now_ + span, std::move(work)); }

  /// Runs the next event; false if there is none, or the time is over.
  bool step(Nanos end) {
    if (events_.empty() || events_.top().when > end) return false;
    std::function<void()> work = std::move(const_cast<Event&>(events_.top()).work);
    now_ = events_.top().when;
    events_.pop();
    ++steps_;
    work();
    return true;
  }
  uint64_t steps() const { return steps_; }

  /// Adds every event to a hash, so that two runs can be compared by one number.
  void note(uint64_t what) { hash_ = Random::mix(hash_ ^ what) + static_cast<uint64_t>(now_.count()); }
  uint64_t hash() const { return hash_; }

  /// Records a violated guarantee. The first one counts.
  void violated(std::string what) {
    if (violation_.empty()) violation_ = std::move(what);
  }
  const std::string& violation() const { return violation_; }

 private:
  struct Event {
    Nanos when;
    uint64_t number;  ///< events of the same time happen in the order of their requests
    std::function<void()> work;
    bool operator<(const Event& other) const { return std::pair(other.when, other.number) < std::pair(when, number); }
  };

  Nanos now_{0};
  uint64_t next_ = 0, steps_ = 0, hash_ = 0;
  std::priority_queue<Event> events_;
  std::string violation_;
};

}  // namespace mv::sim
