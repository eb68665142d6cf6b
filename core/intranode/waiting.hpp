#pragma once
// How a RankContext waits for another rank's words to change. Part of rank_context.hpp, for the files that implement
// it.

#include <algorithm>

#include "base/memory_fence.hpp"
#include "intranode/rank_context.hpp"

namespace mv::intranode {

/// Adds the time until its end to the waits for this rank, if they are measured.
class WaitMeasure {
 public:
  WaitMeasure(std::vector<base::Nanos>& waited, Slices& slices, size_t on)
      : waited_(waited), slices_(slices), on_(on), since_(waited.empty() ? base::Nanos{0} : now()) {}
  WaitMeasure(const WaitMeasure&) = delete;
  WaitMeasure& operator=(const WaitMeasure&) = delete;
  ~WaitMeasure() {
    if (waited_.empty()) return;
    const base::Nanos until = now();
    waited_[on_] += until - since_;
    slices_.wait(since_, until);
  }

 private:
  std::vector<base::Nanos>& waited_;
  Slices& slices_;
  const size_t on_;
  const base::Nanos since_;
};

template <typename Ready>
base::Status RankContext::wait(size_t on, base::Nanos deadline, const Ready& ready) {
  if (ready()) return base::Status();
  const WaitMeasure measure(waited_, slices_, on);
  // settle() waits until all writes have reached the caches. News may arrive meanwhile.
  if (owes_ && !spin_policy_.is_crowded() && spin_policy_.poll(ready)) {
    spin_policy_.hit();
    return base::Status();
  }
  settle();
  if (const base::Nanos budget = spin_policy_.budget(); budget > base::Nanos{0}) {
    const base::Nanos until = std::min(deadline, now() + budget);
    do {
      if (spin_policy_.poll(ready)) {
        spin_policy_.hit();
        return base::Status();
      }
    } while (now() < until);
    spin_policy_.failed();
  }
  return sleep(on, deadline, ready);
}

/// Dekker's pattern (base/memory_fence.hpp), together with settle(): this rank announces that it sleeps before its last check,
/// and the other one changes its word before it looks for sleepers. If the other one rings in between, the bell differs
/// from `seen`, and the kernel does not put this rank to sleep. Modelled in tests/models/intranode_wait.pml, the end of
/// a group in intranode_end.pml.
template <typename Ready>
base::Status RankContext::sleep(size_t on, base::Nanos deadline, const Ready& ready) {
  constexpr base::Nanos kLongest = std::chrono::seconds(1);
  const base::Nanos begun = now();
  asleep_since_.store(begun.count(), std::memory_order_relaxed);
  while (true) {
    const uint32_t seen = words(on).bell.load();
    own().asleep_on.store(1 + static_cast<uint32_t>(on), std::memory_order_relaxed);
    base::full_fence();
    base::Status status;
    Slept slept = Slept::kWoken;
    bool is_ready = ready();
    if (!is_ready) status = trouble(on);
    if (!is_ready && status.ok()) {
      const base::Nanos at = now();
      if (at >= deadline) status = base::Status(MV_ETIMEOUT, "the deadline passed");
      else slept = sleep_by(words(on).bell, seen, std::min(deadline, at + kLongest));
    }
    own().asleep_on.store(0, std::memory_order_relaxed);
    if (is_ready || ready()) {
      spin_policy_.slept(now() - begun);
      return base::Status();
    }
    if (!status.ok()) return status;
    if (slept == Slept::kInterrupted) return base::Status(MV_EINTR, "a signal interrupted the wait");
  }
}

}  // namespace mv::intranode
