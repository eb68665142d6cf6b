#pragma once
// How long a rank spins before it sleeps, and how it sleeps.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "base/clock.hpp"
#include "base/relax.hpp"

namespace mv::intranode {

/// Decides how long a wait spins before it sleeps. Waking a processor takes about 50 microseconds; a change in shared
/// memory is visible after a tenth of that. Waiters therefore spin for a while, and less often when spinning rarely
/// succeeds. They do not spin if the awaited event arrives as soon as they sleep, because on a busy machine the two
/// ranks may share a processor for a while.
///
/// If ranks outnumber the processors that they may use, a waiter yields its own between two checks. The rank that it
/// waits for then continues at once, which takes a twentieth of a sleep and a wake-up. Such waiters always spin, and for
/// longer the more ranks share a processor, but for less after failures: a rank that has work may get its processor back
/// late.
class SpinPolicy {
 public:
  SpinPolicy(size_t ranks, base::Nanos limit);

  /// Whether ranks outnumber processors.
  bool is_crowded() const { return crowded_; }
  /// How long to spin now; 0: not at all.
  base::Nanos budget();
  /// Spins between two reads of the clock: checks `ready` a few times, and returns whether it was true.
  template <typename Ready>
  bool poll(const Ready& ready) const;
  /// The outcome of spinning.
  void hit() { failures_ = skip_ = 0; }
  void failed();
  /// How long the rank slept afterwards. If the sleep was short, spinning would have been better.
  void slept(base::Nanos span);

 private:
  bool crowded_;
  base::Nanos limit_;
  int failures_ = 0;     ///< in a row
  int skip_ = 0;         ///< waits until the next try
  bool spun_ = false;    ///< it spun before it slept
  int in_the_way_ = 0;   ///< times in a row that the event arrived at once in sleep, after spinning had failed
  int apart_ = 0;        ///< waits without spinning, because of that
};

template <typename Ready>
bool SpinPolicy::poll(const Ready& ready) const {
  constexpr int kLooks = 64;
  if (crowded_) {
    std::this_thread::yield();
    return ready();
  }
  for (int times = 0; times < kLooks; ++times) {
    if (ready()) return true;
    base::relax();
  }
  return false;
}

/// The clock of deadlines.
base::Nanos now();

enum class Slept { kWoken, kInterrupted };
/// Sleeps while `*bell` is `seen`, until it is rung, a signal comes or `until`, or spuriously. The memory may be
/// read-only.
Slept sleep_by(const std::atomic<uint32_t>& bell, uint32_t seen, base::Nanos until);
/// Wakes all sleepers on this bell, in every process. The memory may be read-only.
void wake_all(const std::atomic<uint32_t>& bell);

}  // namespace mv::intranode
