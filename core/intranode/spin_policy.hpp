#pragma once
// How long a rank looks for news before it sleeps, and how it sleeps.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "base/clock.hpp"
#include "base/relax.hpp"

namespace mv::intranode {

/// Waking a processor costs some 50 microseconds, news through shared memory a tenth of one. So who waits looks for a while; less and
/// less often where it has not hit, and not where what it waits for comes as soon as it sleeps: on a busy machine the two may share a
/// processor for a while. Where ranks outnumber the processors that they may use, it exports its own to them between two looks,
/// for else it would keep them from what it waits for.
class SpinPolicy {
 public:
  SpinPolicy(size_t ranks, base::Nanos look);

  /// Ranks outnumber processors.
  bool is_crowded() const { return crowded_; }
  /// How long to look now; 0: not at all.
  base::Nanos budget();
  /// Between two looks at the clock: looks a few times, and says whether there was what it looks for.
  template <typename Ready>
  bool look(const Ready& ready) const;
  /// What came of it.
  void hit() { failures_ = skip_ = 0; }
  void failed();
  /// How long it slept then. Short sleeps are those that looking would have spared.
  void slept(base::Nanos span);

 private:
  bool crowded_;
  base::Nanos look_;
  int failures_ = 0;  ///< in a row
  int skip_ = 0;      ///< waits until the next try
  bool looked_ = false;  ///< before it slept
  int in_the_way_ = 0;   ///< times in a row that sleeping brought at once what looking had not
  int apart_ = 0;        ///< waits without looking, because of that
};

template <typename Ready>
bool SpinPolicy::look(const Ready& ready) const {
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
/// Sleeps while `*bell` is `seen`, until it is rung, a signal comes, or `until`, or for no reason. The memory may be read-only.
Slept sleep_by(const std::atomic<uint32_t>& bell, uint32_t seen, base::Nanos until);
/// Wakes all who sleep by it, in every process. The memory may be read-only.
void wake_all(const std::atomic<uint32_t>& bell);

}  // namespace mv::intranode
