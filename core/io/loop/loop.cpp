#include "io/loop/loop.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <ctime>

#include "base/log.hpp"
#include "base/relax.hpp"

namespace mv::io {

using base::kNever;
using base::Nanos;

namespace {

thread_local const Loop* driven_here = nullptr;

class Driving {
 public:
  explicit Driving(const Loop* loop) : before_(driven_here) { driven_here = loop; }
  ~Driving() { driven_here = before_; }

 private:
  const Loop* before_;
};

/// Every signal but those that a thread raises by its own fault.
sigset_t asynchronous_signals() {
  sigset_t set;
  sigfillset(&set);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&set, fault);
  return set;
}

/// Holds signals back but for the time inside ppoll(2): no handler runs in the middle of an engine, and a signal that comes
/// just before the sleep still ends it.
class SignalGate {
 public:
  SignalGate() {
    const sigset_t blocked = asynchronous_signals();
    pthread_sigmask(SIG_BLOCK, &blocked, &open_);
  }
  ~SignalGate() { pthread_sigmask(SIG_SETMASK, &open_, nullptr); }
  SignalGate(const SignalGate&) = delete;
  SignalGate& operator=(const SignalGate&) = delete;
  const sigset_t& open() const { return open_; }

 private:
  sigset_t open_;
};

/// So often in a row something is found in shared memory before libuv and signals have their turn.
constexpr int kMostLooks = 32;

enum class Woke { kReady, kBell, kTimeout, kSignal };

/// kBell: nothing but `bell` (if there is one); it is silent again.
Woke sleep_on(int fd, int bell, Nanos limit, const sigset_t& open) {
  pollfd watched[2] = {{fd, POLLIN, 0}, {bell, POLLIN, 0}};  // a negative one is passed over
  timespec span{};
  if (limit != kNever) {
    span.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000);
    span.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
  }
  const int ready = ppoll(watched, 2, limit == kNever ? nullptr : &span, &open);
  if (ready > 0 && watched[1].revents != 0) {
    uint64_t rings;
    [[maybe_unused]] const ssize_t got = ::read(bell, &rings, sizeof rings);
  }
  if (ready > 0) return watched[0].revents != 0 ? Woke::kReady : Woke::kBell;
  return ready < 0 && errno == EINTR ? Woke::kSignal : Woke::kTimeout;
}

}  // namespace

Loop::Loop() {
  if (const int failed = uv_loop_init(&uv_); failed != 0) {
    ready_ = base::error(MV_ESYSTEM, "can't make an event loop: {}", uv_strerror(failed));
    return;
  }
  uv_async_init(&uv_, &wake_up_, [](uv_async_t*) {});
  wake_up_.data = this;
  uv_timer_init(&uv_, &timer_);
  timer_.data = this;
  bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (int fd : {uv_backend_fd(&uv_), uv_.async_io_watcher.fd, uv_.signal_pipefd[0], uv_.signal_pipefd[1], bell_}) {
    if (fd >= 0) descriptors_.add(fd);
  }
}

Loop::~Loop() {
  stop();
  if (!ready_.ok()) return;
  uv_close(reinterpret_cast<uv_handle_t*>(&wake_up_), nullptr);
  uv_close(reinterpret_cast<uv_handle_t*>(&timer_), nullptr);
  while (uv_loop_close(&uv_) == UV_EBUSY) uv_run(&uv_, UV_RUN_ONCE);
  for (int fd : spare_wake_fds_) ::close(fd);
  if (bell_ >= 0) ::close(bell_);
}

base::Status Loop::start() {
  if (!ready_.ok()) return ready_;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // for the new thread to inherit
  base::Status status;
  try {
    background_ = std::thread([this] { run_background(); });
  } catch (const std::system_error& failed) {
    status = base::error(MV_ESYSTEM, "can't start the loop's thread: {}", failed.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

void Loop::stop() {
  std::vector<Task> dropped;
  {
    Lock lock(mutex_);
    if (!stopping_) {
      stopping_ = true;
      if (ready_.ok()) uv_async_send(&wake_up_);
      background_cv_.notify_one();
      wake_line(/*all=*/true);
    }
  }
  if (background_.joinable()) background_.join();
  Lock lock(mutex_);
  callers_out_.wait(lock, [this] { return callers_ == 0; });
  dropped.swap(queue_);
  lock.unlock();
}

Nanos Loop::now() const { return std::chrono::steady_clock::now().time_since_epoch(); }

Nanos Loop::busy() const { return ticks_.scale().span(static_cast<int64_t>(worked_ + (ticks_.read() - working_since_))); }

bool Loop::driven_by_me() const noexcept { return driven_here == this; }

void Loop::post(Task task) {
  Lock lock(mutex_);
  if (stopping_) {
    lock.unlock();
    return;  // task is dropped without the lock
  }
  const bool was_empty = queue_.empty();
  queue_.push_back(std::move(task));
  has_tasks_.store(true, std::memory_order_relaxed);
  if (asleep_) {
    asleep_ = false;
    lock.unlock();
    uv_async_send(&wake_up_);
  } else if (was_empty && baton_ == Baton::kFree) {
    background_cv_.notify_one();
  }
}

// ------------------------------------------------------------ the background thread

void Loop::run_background() {
  const Driving driving(this);
  sigset_t mask;  // all are blocked here, asleep or not
  sigfillset(&mask);
  Lock lock(mutex_);
  while (!stopping_) {
    if (baton_ != Baton::kFree || (queue_.empty() && line_.empty() && now() < hot_until_)) {
      step_back(lock);
      continue;
    }
    baton_ = Baton::kBackground;
    patience_ = kLeastPatience;
    lock.unlock();
    begin_work();
    run_tasks();
    flush();
    wake_waiters();
    if (watchers_changed_) poll_now();
    if (!spin()) {
      sleep(kNever, mask);
      flush();
      wake_waiters();
    }
    end_work();
    lock.lock();
    baton_ = Baton::kFree;
    asleep_ = false;
  }
  if (baton_ == Baton::kFree) hand_on();
}

/// Leaves the loop to callers: looks again after patience_, or, when one and the same call lasts longer than that, once it ends.
/// So a burst of short calls pays little for waking this thread, and a long one pays once.
void Loop::step_back(Lock& lock) {
  if (baton_ == Baton::kCaller && drives_ == seen_drives_) {
    resting_ = true;
    background_cv_.wait(lock);
    resting_ = false;
    return;
  }
  if (drives_ > seen_drives_ + 1) patience_ = std::min(2 * patience_, kMostPatience);
  seen_drives_ = drives_;
  const Nanos until = baton_ == Baton::kCaller ? now() + patience_ : hot_until_;
  background_cv_.wait_until(lock, std::chrono::steady_clock::time_point(until));
}

// ------------------------------------------------------------ callers

Driven Loop::drive_until(const std::function<bool()>& done, Nanos deadline, Task first) {
  assert(!driven_by_me());
  const SignalGate gate;
  Lock lock(mutex_);
  if (first && !stopping_) {
    queue_.push_back(std::move(first));
    has_tasks_.store(true, std::memory_order_relaxed);
  }
  ++callers_;
  const Driven how = drive_in_turn(lock, done, deadline, gate.open());
  if (--callers_ == 0 && stopping_) callers_out_.notify_all();
  return how;
}

Driven Loop::drive_in_turn(Lock& lock, const std::function<bool()>& done, Nanos deadline, const sigset_t& open) {
  for (;;) {
    // Not before the baton is free: until then a driver may be running a task that refers to what this caller owns.
    if (stopping_ && baton_ == Baton::kFree) return done() ? Driven::kDone : Driven::kStopped;
    if (baton_ == Baton::kFree) {
      baton_ = Baton::kCaller;
      ++drives_;
      lock.unlock();
      begin_work();
      const Driven how = drive(done, deadline, open);
      end_work();
      lock.lock();
      leave_baton();
      return how;
    }
    if (const auto how = wait_in_line(lock, done, deadline, open)) {
      if (baton_ == Baton::kFree) hand_on();  // it may have been offered to us just now
      return *how;
    }
  }
}

Driven Loop::drive(const std::function<bool()>& done, Nanos deadline, const sigset_t& open) {
  const Driving driving(this);
  for (;;) {
    run_tasks();
    flush();
    wake_waiters();
    if (done()) return Driven::kDone;
    if (watchers_changed_) poll_now();
    if (done()) return Driven::kDone;
    if (stopping_.load(std::memory_order_acquire)) return Driven::kStopped;

    if (spin()) continue;
    const Nanos at = now();
    if (at >= deadline) return Driven::kTimeout;
    if (!sleep(deadline == kNever ? kNever : deadline - at, open)) return done() ? Driven::kDone : Driven::kInterrupted;
  }
}

/// Until something comes, or `most` is over; takes what has come. False if it was a signal.
bool Loop::sleep(Nanos most, const sigset_t& open) {
  Nanos limit{0};
  if (!is_quiet()) {
    if (++looks_ < kMostLooks) return look(), true;
    looks_ = 0;  // libuv and signals have their turn
  } else if (may_sleep()) {
    uv_update_time(&uv_);
    const int timers = uv_backend_timeout(&uv_);
    limit = std::min(most, timers < 0 ? kNever : Nanos(std::chrono::milliseconds(timers)));
  }
  end_work();
  const Woke woke = sleep_on(uv_backend_fd(&uv_), bell_, limit, open);
  begin_work();
  after_sleep();
  if (woke == Woke::kSignal) return false;
  if (woke == Woke::kBell && limit != Nanos{0})
    look();  // libuv has nothing
  else
    poll_now();
  return true;
}

/// Waits while others drive. Nothing if the baton may be free now. Keeps the lock but for the wait itself.
std::optional<Driven> Loop::wait_in_line(Lock& lock, const std::function<bool()>& done, Nanos deadline,
                                         const sigset_t& open) {
  Waiter me{&done, take_wake_fd()};
  line_.push_back(&me);
  waiting_.fetch_add(1, std::memory_order_acq_rel);
  const bool wake_driver = asleep_ && !queue_.empty();
  if (wake_driver) asleep_ = false;
  lock.unlock();
  if (wake_driver) uv_async_send(&wake_up_);

  std::optional<Driven> how;
  if (!done()) {
    Nanos limit = deadline == kNever ? kNever : std::max(Nanos{0}, deadline - now());
    if (me.wake_fd < 0)
      limit = std::min(limit, Nanos(std::chrono::milliseconds(1)));  // out of descriptors: look again and again
    const Woke woke = sleep_on(me.wake_fd, -1, limit, open);
    if (woke == Woke::kSignal) how = Driven::kInterrupted;
    if (woke == Woke::kTimeout && now() >= deadline) how = Driven::kTimeout;
  }
  if (done()) how = Driven::kDone;

  lock.lock();
  if (!me.woken) {
    std::erase(line_, &me);
    waiting_.fetch_sub(1, std::memory_order_acq_rel);
  } else if (me.wake_fd >= 0) {
    uint64_t count;
    [[maybe_unused]] const ssize_t drained = ::read(me.wake_fd, &count, sizeof count);
  }
  if (me.wake_fd >= 0) spare_wake_fds_.push_back(me.wake_fd);
  hot_until_ = now() + patience_;
  return how;
}

void Loop::leave_baton() {
  baton_ = Baton::kFree;
  asleep_ = false;
  hot_until_ = now() + patience_;
  hand_on();
}

/// The baton is free: offers it to the first in line, or tells the background thread if it has to know. At the end there is
/// nothing left to drive, and all in line hear of it. Under mutex_.
void Loop::hand_on() {
  if (stopping_) {
    wake_line(/*all=*/true);
  } else if (!line_.empty()) {
    Waiter& next = *line_.front();
    line_.erase(line_.begin());
    waiting_.fetch_sub(1, std::memory_order_acq_rel);
    next.woken = true;
    if (next.wake_fd >= 0) eventfd_write(next.wake_fd, 1);
  } else if (resting_ || !queue_.empty()) {
    background_cv_.notify_one();
  }
}

void Loop::wake_waiters() {
  const bool off_the_loop = !driven_by_me();
  // A read-modify-write, so that either it follows the waiter's own and sees it, or the waiter sees what was done before.
  if (waiting_.fetch_add(0, std::memory_order_acq_rel) == 0 && !off_the_loop) return;
  Lock lock(mutex_);
  wake_line(/*all=*/false);
  if (off_the_loop && baton_ == Baton::kCaller && std::exchange(asleep_, false)) uv_async_send(&wake_up_);
}

/// Wakes those in line who are done. They leave the line here, so that the background thread steps back at once.
void Loop::wake_line(bool all) {
  const size_t before = line_.size();
  std::erase_if(line_, [all](Waiter* waiter) {
    if (!all && !(*waiter->done)()) return false;
    waiter->woken = true;
    if (waiter->wake_fd >= 0) eventfd_write(waiter->wake_fd, 1);
    return true;
  });
  if (line_.size() == before) return;
  waiting_.fetch_sub(static_cast<int>(before - line_.size()), std::memory_order_acq_rel);
  hot_until_ = now() + patience_;
}

int Loop::take_wake_fd() {
  if (!spare_wake_fds_.empty()) {
    const int fd = spare_wake_fds_.back();
    spare_wake_fds_.pop_back();
    return fd;
  }
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd >= 0) descriptors_.add(fd);
  return fd;
}

// ------------------------------------------------------------ by whoever drives

void Loop::run_tasks() {
  {
    Lock lock(mutex_);
    asleep_ = false;
    if (queue_.empty()) return;
    running_.swap(queue_);
    has_tasks_.store(false, std::memory_order_relaxed);
  }
  uv_update_time(&uv_);
  for (Task& task : running_) {
    task();
    task = Task();  // its captures end with it, not with the batch
  }
  running_.clear();
}

/// Takes what has arrived, and answers it.
void Loop::poll_now() {
  watchers_changed_ = false;
  uv_run(&uv_, UV_RUN_NOWAIT);
  look();
  flush();
  wake_waiters();
}

void Loop::flush() {
  for (size_t i = 0; i < flushers_.size(); ++i) flushers_[i]->flush();
}

bool Loop::look() {
  bool any = false;
  for (size_t i = 0; i < watched_.size(); ++i) any |= watched_[i]->look();
  return any;
}

/// Looks for news as long as that is worth while. True if there are any; then libuv has its turn later, but has it.
bool Loop::spin() {
  constexpr int kLooksPerGlance = 16;  // at the clock
  if (watched_.empty() || watchers_changed_ || looks_ >= kMostLooks) {
    looks_ = 0;
    return false;
  }
  auto writers = Watched::Writers::kNone;
  for (const Watched* watched : watched_) writers = std::max(writers, watched->writers());
  if (writers == Watched::Writers::kNone) return false;
  const Nanos begin = now(), budget = spin_.budget(begin);
  if (budget == Nanos{0}) return false;
  const bool yields = writers == Watched::Writers::kHere;  // they can't go on while we look
  do {
    for (int i = 0; i < (yields ? 1 : kLooksPerGlance); ++i) {
      if (look()) {
        ++looks_;
        spin_.paid();
        return true;
      }
      if (has_tasks_.load(std::memory_order_relaxed) || stopping_.load(std::memory_order_relaxed)) return true;
      yields ? static_cast<void>(sched_yield()) : base::relax();
    }
  } while (now() - begin < budget);
  spin_.failed();
  looks_ = 0;
  return false;
}

/// Nothing came before peers knew that they have to ring from now on.
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
  asleep_ = queue_.empty() && !stopping_;
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
  if (const Nanos at = timer_at_; now() < at) {  // libuv's clock runs up to a millisecond behind ours
    timer_at_ = kNever;
    set_timer(at, std::move(timer_fn_));
    return;
  }
  timer_at_ = kNever;
  Task due = std::move(timer_fn_);
  if (due) due();
}

}  // namespace mv::io
