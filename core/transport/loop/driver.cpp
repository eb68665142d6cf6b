// What the thread does that drives the loop: the callers' tasks, the transports' events, spinning, and the timer.

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/relax.hpp"
#include "transport/loop/loop.hpp"

namespace mv::transport {

using base::kNever;
using base::Nanos;

void Loop::run_tasks() {
  {
    Lock lock(mutex_);
    asleep_ = false;
    news_.store(false, std::memory_order_relaxed);
    if (queue_.empty()) return;
    running_.swap(queue_);
  }
  uv_update_time(&uv_);
  for (Task& task : running_) {
    guard([&] {
      task();
      task = Task();  // destroys its captures now, not at the end of the batch
    });
  }
  running_.clear();
}

/// Processes all events that have arrived, and sends the answers.
void Loop::poll_now() {
  watchers_changed_ = false;
  poll_by_ = now() + kLongestUnpolled;
  prepare_poll();
  uv_run(&uv_, UV_RUN_NOWAIT);
  poll_watched();
  flush();
  wake_waiters();
}

void Loop::flush() {
  for (size_t i = 0; i < flushers_.size(); ++i) guard([&] { flushers_[i]->flush(); });
}

void Loop::prepare_poll() {
  for (size_t i = 0; i < flushers_.size(); ++i) guard([&] { flushers_[i]->prepare_poll(); });
}

bool Loop::poll_watched() {
  bool any = false;
  for (size_t i = 0; i < watched_.size(); ++i) guard([&] { any |= watched_[i]->poll(); });
  return any;
}

bool Loop::begin_reading() {
  bool any = false;
  for (BusySockets* sockets : sockets_) any |= sockets->begin_reading();
  return any;
}

bool Loop::read_sockets() {
  bool any = false;
  for (size_t i = 0; i < sockets_.size(); ++i) guard([&] { any |= sockets_[i]->read(); });
  return any;
}

/// Whether libuv has events of any socket, pipe or bell.
bool Loop::has_events() const {
  pollfd all = {uv_backend_fd(&uv_), POLLIN, 0};
  return poll(&all, 1, 0) > 0;
}

/// Spins for as long as the policy allows. True if there is news; libuv then gets its turn later, but is not starved.
/// `reads`: from sockets, too. The background thread does not, because it waits for callers most of the time.
bool Loop::spin(bool reads) {
  constexpr int kPollsPerRound = 16, kReadsPerRound = 4;  // polls and reads between two reads of the clock
  if (watchers_changed_ || polls_ >= kMostPolls) {
    polls_ = 0;
    return false;
  }
  auto writers = Watched::Writers::kNone;
  for (const Watched* watched : watched_) writers = std::max(writers, watched->writers());
  reads = reads && begin_reading();
  if (writers == Watched::Writers::kNone && !reads) return false;
  Nanos budget = spin_policy_.budget();
  if (budget == Nanos{0}) return false;
  const Nanos begin = now();
  Nanos spun{0};
  bool yields = writers == Watched::Writers::kHere;  // they can't run while we spin
  if (reads && crowded_ > 0) {
    --crowded_;
    yields = true;
    budget *= kCrowdedBudget;
  }
  Nanos look_at = kLookEvery;
  bool is_first = reads && yields;
  bool skips = is_first && early_misses_ == kEarlyMisses && ++early_skips_ % kEarlySkips != 0;
  do {
    for (int i = 0; i < (yields ? 1 : reads ? kReadsPerRound : kPollsPerRound); ++i) {
      if (poll_watched() || (reads && !skips && read_sockets())) {
        if (is_first && !skips) early_misses_ = 0;
        ++polls_;
        spin_policy_.hit();
        return true;
      }
      if (is_first && !skips) early_misses_ = std::min(early_misses_ + 1, kEarlyMisses);
      is_first = skips = false;
      if (news_.load(std::memory_order_relaxed) || stopping_.load(std::memory_order_relaxed)) return true;
      yields ? static_cast<void>(sched_yield()) : base::relax();
    }
    const Nanos before = std::exchange(spun, now() - begin);
    if (reads && yields && spun - before > kYielded) crowded_ = kCrowdedSpins;
    if (spun >= look_at) {
      if (has_events()) return false;  // the sleep processes them. A fabric's descriptor may stay readable until then
      look_at = spun + kLookEvery;
    }
    yields |= spun >= SpinPolicy::kWithoutYielding;
  } while (spun < budget);
  spin_policy_.failed(spun);
  polls_ = 0;
  return false;
}

/// True if nothing arrived before the peers could know that they must ring from now on.
bool Loop::is_quiet() {
  for (size_t i = 0; i < watched_.size(); ++i) {
    if (watched_[i]->before_sleep()) continue;
    while (i-- > 0) watched_[i]->after_sleep();
    return false;
  }
  return true;
}

bool Loop::may_sleep() {
  Lock lock(mutex_);
  asleep_ = !news_.load(std::memory_order_relaxed) && !stopping_;
  return asleep_;
}

void Loop::after_sleep() {
  for (Watched* watched : watched_) watched->after_sleep();
}

void Loop::set_timer(Nanos at, Task fn) {
  timer_fn_ = std::move(fn);
  if (at == timer_at_ && (at == kNever || uv_is_active(reinterpret_cast<uv_handle_t*>(&timer_)))) return;
  timer_at_ = at;
  if (at == kNever) {
    uv_timer_stop(&timer_);
    return;
  }
  uv_update_time(&uv_);
  const auto delay = std::chrono::ceil<std::chrono::milliseconds>(std::max(Nanos{0}, at - now()));
  uv_timer_start(
      &timer_, [](uv_timer_t* timer) { static_cast<Loop*>(timer->data)->on_timer(); },
      static_cast<uint64_t>(delay.count()), 0);
}

void Loop::on_timer() {
  if (const Nanos at = timer_at_; now() < at) {  // libuv's clock is up to a millisecond behind ours
    timer_at_ = kNever;
    set_timer(at, std::move(timer_fn_));
    return;
  }
  timer_at_ = kNever;
  guard([&] {
    Task due = std::move(timer_fn_);
    if (due) due();
  });
}

}  // namespace mv::transport
