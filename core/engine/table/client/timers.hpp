#pragma once
// The deadlines of calls that wait for servers.

#include <map>
#include <memory>
#include <utility>

#include "base/clock.hpp"

namespace mv::table {

/// Loop thread only.
class Timers {
 public:
  class Timed {
   public:
    virtual ~Timed() = default;
    /// The time has come. Its timer is no longer set.
    virtual void on_time() = 0;
  };
  using Map = std::multimap<base::Nanos, std::shared_ptr<Timed>>;
  using Timer = Map::iterator;

  /// Keeps `timed` until then, or until the timer is dropped.
  Timer set(base::Nanos at, std::shared_ptr<Timed> timed) {
    if (spare_.empty()) return timers_.emplace(at, std::move(timed));
    spare_.key() = at;
    spare_.mapped() = std::move(timed);
    return timers_.insert(std::move(spare_));
  }
  void drop(Timer timer) {
    spare_ = timers_.extract(timer);
    spare_.mapped().reset();
  }
  base::Nanos next() const { return timers_.empty() ? base::kNever : timers_.begin()->first; }
  void tick(base::Nanos now) {
    while (!timers_.empty() && timers_.begin()->first <= now) timers_.extract(timers_.begin()).mapped()->on_time();
  }

 private:
  Map timers_;
  Map::node_type spare_;  ///< saves an allocation for each call
};

}  // namespace mv::table
