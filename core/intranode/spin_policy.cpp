#include "intranode/spin_policy.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>

#include "base/processors.hpp"

namespace mv::intranode {

namespace {

/// Guesses that were good on two machines. No trial replaces them: the policy learns from the outcome of each wait, and
/// these only say how fast. The longest spin is a setting, spin_us.
constexpr int kFreeFailures = 4;
constexpr int kMostSkipped = 16;
constexpr base::Nanos kShort = std::chrono::microseconds(200), kAtOnce = std::chrono::microseconds(25);
constexpr int kInTheWay = 2, kApart = 256;
/// For ranks that outnumber processors: the longest budget, as a multiple of the limit, and the shortest, as a part of it. The
/// budget is halved for each failure in a row.
constexpr size_t kMostSharing = 8;
constexpr int kLeastPart = 4;

/// The most ranks that share a processor, as far as it matters.
size_t sharing(size_t ranks) {
  const auto all = static_cast<size_t>(std::max(base::allowed_processors(), 1));
  return std::min((ranks + all - 1) / all, kMostSharing);
}

/// const_cast: FUTEX_WAIT_BITSET only reads the word, FUTEX_WAKE does not access it.
long futex(const std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* until) {
  auto* const at = const_cast<std::atomic<uint32_t>*>(&word);
  return syscall(SYS_futex, at, operation, value, until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace

SpinPolicy::SpinPolicy(size_t ranks, base::Nanos limit) : crowded_(sharing(ranks) > 1), limit_(limit * sharing(ranks)) {}

base::Nanos SpinPolicy::budget() {
  if (crowded_) return std::max(limit_ / (1 << std::clamp(failures_ - kFreeFailures, 0, 16)), limit_ / kLeastPart);
  spun_ = false;
  if (apart_ > 0) {
    --apart_;
    return base::Nanos{0};
  }
  if (skip_ > 0) {
    --skip_;
    return base::Nanos{0};
  }
  spun_ = true;
  return limit_;
}

void SpinPolicy::failed() {
  if (++failures_ <= kFreeFailures) return;
  skip_ = std::min(kMostSkipped, 1 << std::min(failures_ - kFreeFailures, 16));
}

void SpinPolicy::slept(base::Nanos span) {
  in_the_way_ = spun_ && span < kAtOnce ? in_the_way_ + 1 : 0;
  if (in_the_way_ >= kInTheWay) apart_ = kApart;
  if (span < kShort) hit();
}

base::Nanos now() { return std::chrono::steady_clock::now().time_since_epoch(); }

Slept sleep_by(const std::atomic<uint32_t>& bell, uint32_t seen, base::Nanos until) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(until);
  timespec when{};
  when.tv_sec = seconds.count();
  when.tv_nsec = (until - seconds).count();
  const long done = futex(bell, FUTEX_WAIT_BITSET, seen, &when);
  return done != 0 && errno == EINTR ? Slept::kInterrupted : Slept::kWoken;
}

void wake_all(const std::atomic<uint32_t>& bell) { futex(bell, FUTEX_WAKE, INT_MAX, nullptr); }

}  // namespace mv::intranode
