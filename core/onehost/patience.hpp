#pragma once
// How long a rank looks for news before it sleeps, and how it sleeps.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/clock.hpp"

namespace mv::onehost {

/// Waking a processor costs some 50 microseconds, news through shared memory a tenth of one. So who waits looks for a while; not
/// where ranks outnumber the processors that they may use, for then it keeps the others from what it waits for; and less and less
/// often where it has not paid.
class Patience {
 public:
  Patience(size_t ranks, base::Nanos look);

  /// Somebody waits for a processor while this rank looks.
  bool is_crowded() const { return crowded_; }
  /// How long to look now; 0: not at all.
  base::Nanos budget();
  /// What came of it.
  void paid() { failures_ = skip_ = 0; }
  void failed();
  /// How long it slept then. Short sleeps are those that looking would have spared.
  void slept(base::Nanos span) {
    if (span < kShort) paid();
  }

 private:
  static constexpr base::Nanos kShort = std::chrono::microseconds(200);

  bool crowded_;
  base::Nanos look_;
  int failures_ = 0;  ///< in a row
  int skip_ = 0;      ///< waits until the next try
};

/// The clock of deadlines.
base::Nanos now();

enum class Slept { kWoken, kInterrupted };
/// Sleeps while `*bell` is `seen`, until it is rung, a signal comes, or `until`, or for no reason. The memory may be read-only.
Slept sleep_by(const std::atomic<uint32_t>& bell, uint32_t seen, base::Nanos until);
/// Wakes all who sleep by it, in every process. The memory may be read-only.
void wake_all(const std::atomic<uint32_t>& bell);

}  // namespace mv::onehost
