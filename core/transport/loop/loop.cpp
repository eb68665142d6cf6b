#include "transport/loop/loop.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <utility>

#include "base/log.hpp"

namespace mv::transport {

using base::kNever;
using base::Nanos;

/// The interruptions that may end a sleep early: signals, and pthread_cancel().
struct Interruptions {
  sigset_t signals;
  int cancel = PTHREAD_CANCEL_DISABLE;
};

namespace {

thread_local const Loop* driven_here = nullptr;

class Driving {
 public:
  explicit Driving(const Loop* loop) : before_(driven_here) { driven_here = loop; }
  ~Driving() { driven_here = before_; }

 private:
  const Loop* before_;
};

/// Every signal except those that a thread raises by a fault of its own.
sigset_t asynchronous_signals() {
  sigset_t set;
  sigfillset(&set);
  for (int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&set, fault);
  return set;
}

/// Blocks signals and cancellation outside ppoll(2): no handler runs, and no thread is cancelled, in the middle of an
/// engine. An interruption that arrives just before the sleep still ends it.
class InterruptionGate {
 public:
  InterruptionGate() {
    static const sigset_t blocked = asynchronous_signals();
    pthread_sigmask(SIG_BLOCK, &blocked, &open_.signals);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &open_.cancel);
  }
  ~InterruptionGate() {
    pthread_setcancelstate(open_.cancel, nullptr);
    pthread_sigmask(SIG_SETMASK, &open_.signals, nullptr);
  }
  InterruptionGate(const InterruptionGate&) = delete;
  InterruptionGate& operator=(const InterruptionGate&) = delete;
  const Interruptions& open() const { return open_; }

 private:
  Interruptions open_{};
};

/// Space for an exception's message, which is written in place.
constexpr size_t kLongestDefect = 300;

/// Makes libuv's table of watchers large enough for most processes, by watching a high descriptor once. libuv calls
/// abort() if the table can't grow; here nothing is under way yet.
void reserve_watchers(uv_loop_t& uv) {
  constexpr int kWatchers = 1000;
  const int low = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  const int high = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, kWatchers);
  if (low >= 0) ::close(low);
  if (high < 0) return;  // few descriptors are allowed, so a small table is enough
  uv_poll_t watched;
  if (uv_poll_init(&uv, &watched, high) == 0) {
    uv_poll_start(&watched, UV_READABLE, [](uv_poll_t*, int, int) {});
    uv_close(reinterpret_cast<uv_handle_t*>(&watched), nullptr);
    uv_run(&uv, UV_RUN_NOWAIT);  // completes the close
  }
  ::close(high);
}

/// Registers libuv's own descriptors. libuv keeps them in private fields, more of them in each release. They are the
/// descriptors that its epoll watches before we add any; the kernel lists them.
void add_watched_by(int epoll, base::Descriptors& descriptors) {
  const std::unique_ptr<FILE, int (*)(FILE*)> list(fopen(fmt::format("/proc/self/fdinfo/{}", epoll).c_str(), "re"), fclose);
  if (list == nullptr) return;
  char line[256];
  int fd = -1;
  while (fgets(line, sizeof line, list.get()) != nullptr)
    if (sscanf(line, "tfd: %d", &fd) == 1) descriptors.add(fd);
}

enum class Woke { kReady, kBell, kTimeout, kSignal };

/// Lets pending signals in.
bool take_signals(const Interruptions& open) {
  constexpr timespec kNow{};
  return ppoll(nullptr, 0, &kNow, &open.signals) < 0 && errno == EINTR;
}

/// kBell: only `bell` was ready, if there is one; it has been reset. Signals are let in while it sleeps: not if something is ready at once.
Woke sleep_on(int fd, int bell, Nanos limit, const Interruptions& open) {
  pollfd watched[2] = {{fd, POLLIN, 0}, {bell, POLLIN, 0}};  // poll ignores a negative one
  timespec span{};
  if (limit != kNever) {
    span.tv_sec = static_cast<time_t>(limit.count() / 1'000'000'000);
    span.tv_nsec = static_cast<long>(limit.count() % 1'000'000'000);
  }
  int closed = 0;
  pthread_setcancelstate(open.cancel, &closed);
  const int ready = ppoll(watched, 2, limit == kNever ? nullptr : &span, &open.signals);
  pthread_setcancelstate(closed, nullptr);
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
  reserve_watchers(uv_);
  for (int fd : {uv_backend_fd(&uv_), bell_}) {
    if (fd >= 0) descriptors_.add(fd);
  }
  add_watched_by(uv_backend_fd(&uv_), descriptors_);
  out_of_memory_ = base::Status(MV_ENOMEM, "this process ran out of memory halfway through a change and has left its cluster; the outcome of unfinished "
                                           "calls is unknown: restart it with more memory or smaller tables");
  thrown_ = base::Status(MV_EINTERNAL, std::string(kLongestDefect, ' '));
}

Loop::~Loop() {
  stop();
  if (!ready_.ok()) return;
  uv_close(reinterpret_cast<uv_handle_t*>(&wake_up_), nullptr);
  uv_close(reinterpret_cast<uv_handle_t*>(&timer_), nullptr);
  while (uv_loop_close(&uv_) == UV_EBUSY) uv_run(&uv_, UV_RUN_ONCE);
  while (spare_wake_fd_count_ > 0) ::close(spare_wake_fds_[--spare_wake_fd_count_]);
  if (bell_ >= 0) ::close(bell_);
}

base::Status Loop::start() {
  if (!ready_.ok()) return ready_;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits the mask
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
bool Loop::driven_by_this_thread() noexcept { return driven_here != nullptr; }

uint64_t Loop::post(Task task) {
  Lock lock(mutex_);
  if (stopping_ || defect() != nullptr) {
    lock.unlock();
    return 0;  // the task is destroyed outside the lock
  }
  const bool was_empty = queue_.empty();
  const uint64_t number = queue(std::move(task));
  if (asleep_) {
    asleep_ = false;
    lock.unlock();
    uv_async_send(&wake_up_);
  } else if (was_empty && baton_ == Baton::kFree) {
    background_cv_.notify_one();
  }
  return number;
}

void Loop::post_or_break(Task task) noexcept {
  try {
    post(std::move(task));
  } catch (const std::exception& thrown) {
    break_down(&thrown);
  }
}

/// Under mutex_.
uint64_t Loop::queue(Task task) {
  queue_.push_back(std::move(task));
  const uint64_t number = posts_.load(std::memory_order_relaxed) + 1;
  posts_.store(number, std::memory_order_relaxed);
  news_.store(true, std::memory_order_relaxed);
  return number;
}

void Loop::shut_down_sockets() noexcept {
  descriptors_.visit_all([](int fd) { ::shutdown(fd, SHUT_RDWR); });  // has no effect on other descriptors
}

void Loop::break_down(const std::exception* thrown) noexcept {
  Lock lock(mutex_);
  if (defect() != nullptr) return;
  if (thrown != nullptr && dynamic_cast<const std::bad_alloc*>(thrown) != nullptr) {
    defect_.store(&out_of_memory_, std::memory_order_release);
  } else {
    thrown_.assign_in_place("internal error; this process has left its cluster: ", thrown != nullptr ? thrown->what() : "an unknown exception");
    defect_.store(&thrown_, std::memory_order_release);
  }
  wake_line(/*all=*/true);
  news_ = true;
  if (std::exchange(asleep_, false)) uv_async_send(&wake_up_);
  background_cv_.notify_one();
  lock.unlock();
  base::log_error("{}", defect()->text());
  if (on_breakdown_) on_breakdown_(*defect());
}

// ------------------------------------------------------------ the background thread

void Loop::run_background() {
  const Driving driving(this);
  Interruptions none;  // this thread blocks all signals, asleep or not
  sigfillset(&none.signals);
  Lock lock(mutex_);
  while (!stopping_) {
    if (defect() != nullptr) {
      if (baton_ == Baton::kFree) hand_on();
      background_cv_.wait(lock);
      continue;
    }
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
    const bool served = wake_waiters();  // then the next call will come soon, and its caller shall drive
    if (watchers_changed_ || (served && now() >= poll_by_)) poll_now();
    if (!served && !spin(/*reads=*/false)) {
      sleep(kNever, none);
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

/// Leaves the loop to callers. Checks again after patience_, or at the end of the call if a single call lasts longer
/// than that. Waking this thread therefore costs a burst of short calls little, and a long call only once.
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

/// A thread inside drive_until().
class Loop::Caller {
 public:
  /// Under mutex_.
  explicit Caller(Loop& loop) : loop_(loop) {
    ++loop_.callers_;
  }
  ~Caller() {
    if (--loop_.callers_ == 0 && loop_.stopping_) loop_.callers_out_.notify_all();
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

 private:
  Loop& loop_;
};

/// A caller's hold of the baton. Also returns the baton if the caller's thread is cancelled while it sleeps.
class Loop::BatonHold {
 public:
  /// Under mutex_, which is unlocked until the destructor.
  BatonHold(Loop& loop, Lock& lock) : loop_(loop), lock_(lock) {
    loop_.baton_ = Baton::kCaller;
    ++loop_.drives_;
    lock_.unlock();
    loop_.begin_work();
  }
  ~BatonHold() {
    loop_.end_work();
    lock_.lock();
    loop_.leave_baton();
  }
  BatonHold(const BatonHold&) = delete;
  BatonHold& operator=(const BatonHold&) = delete;

 private:
  Loop& loop_;
  Lock& lock_;
};

Driven Loop::drive_until(const std::function<bool()>& done, Nanos deadline, Task first) {
  assert(!driven_by_me());
  const InterruptionGate gate;
  Lock lock(mutex_);
  const Caller caller(*this);
  if (first && !stopping_ && defect() == nullptr) queue(std::move(first));
  return drive_in_turn(lock, done, deadline, gate.open());
}

Driven Loop::drive_in_turn(Lock& lock, const std::function<bool()>& done, Nanos deadline, const Interruptions& open) {
  for (;;) {
    // Ends only when the baton is free: until then a driver may be running a task that refers to this caller's memory.
    if (baton_ == Baton::kFree) {
      if (stopping_) return done() ? Driven::kDone : Driven::kStopped;
      if (defect() != nullptr) return done() ? Driven::kDone : Driven::kBroken;
      const BatonHold hold(*this, lock);
      return drive(done, deadline, open);
    }
    if (const auto how = wait_in_line(lock, done, deadline, open)) {
      if (baton_ == Baton::kFree) hand_on();  // it may just have been offered to us
      return *how;
    }
  }
}

Driven Loop::drive(const std::function<bool()>& done, Nanos deadline, const Interruptions& open) {
  const Driving driving(this);
  for (;;) {
    run_tasks();
    flush();
    wake_waiters();
    if (done()) {
      if (left_at_ >= poll_by_) poll_now();
      return Driven::kDone;
    }
    if (watchers_changed_) poll_now();
    if (done()) return Driven::kDone;
    if (stopping_.load(std::memory_order_acquire)) return Driven::kStopped;
    if (defect() != nullptr) return Driven::kBroken;

    const bool was_busy = polls_ >= kMostPolls;
    if (spin(/*reads=*/true)) continue;
    const Nanos at = now();
    if (at >= deadline) return Driven::kTimeout;
    const Nanos most = was_busy ? Nanos{0} : deadline == kNever ? kNever : deadline - at;
    if (!sleep(most, open)) return done() ? Driven::kDone : Driven::kInterrupted;
  }
}

/// Sleeps until something arrives, or for `most`, and processes what has arrived. False if a signal ended the sleep.
bool Loop::sleep(Nanos most, const Interruptions& open) {
  Nanos limit{0};
  if (!is_quiet()) {
    if (most != Nanos{0} && ++polls_ < kMostPolls) return poll_watched(), true;
    polls_ = 0;  // libuv and signals get their turn
  } else if (may_sleep()) {
    prepare_poll();
    uv_update_time(&uv_);
    const int timers = uv_backend_timeout(&uv_);
    limit = std::min(most, timers < 0 ? kNever : Nanos(std::chrono::milliseconds(timers)));
  }
  end_work();
  const Woke woke = sleep_on(uv_backend_fd(&uv_), bell_, limit, open);
  begin_work();
  after_sleep();
  const bool is_due = limit == Nanos{0} || ++wakes_ % kMostPolls == 0;
  if (woke == Woke::kSignal || (is_due && woke != Woke::kTimeout && take_signals(open))) return false;
  if (woke == Woke::kBell && limit != Nanos{0})
    poll_watched();  // libuv has no events
  else
    poll_now();
  return true;
}

/// Waits while another thread drives. Empty if the baton may be free now. Holds the lock except during the wait itself.
std::optional<Driven> Loop::wait_in_line(Lock& lock, const std::function<bool()>& done, Nanos deadline,
                                         const Interruptions& open) {
  Waiter me{&done, take_wake_fd()};
  line_.push(me);
  waiting_.fetch_add(1, std::memory_order_acq_rel);
  const bool wake_driver = asleep_ && !queue_.empty();
  if (wake_driver) asleep_ = false;
  lock.unlock();
  if (wake_driver) uv_async_send(&wake_up_);

  std::optional<Driven> how;
  if (!done()) {
    Nanos limit = deadline == kNever ? kNever : std::max(Nanos{0}, deadline - now());
    if (me.wake_fd < 0)
      limit = std::min(limit, Nanos(std::chrono::milliseconds(1)));  // out of descriptors: polls
    const Woke woke = sleep_on(me.wake_fd, -1, limit, open);
    if (woke == Woke::kSignal) how = Driven::kInterrupted;
    if (woke == Woke::kTimeout && now() >= deadline) how = Driven::kTimeout;
  }
  if (done()) how = Driven::kDone;

  lock.lock();
  if (!me.woken) {
    line_.remove(me);
    waiting_.fetch_sub(1, std::memory_order_acq_rel);
  } else if (me.wake_fd >= 0) {
    uint64_t count;
    [[maybe_unused]] const ssize_t drained = ::read(me.wake_fd, &count, sizeof count);
  }
  if (me.wake_fd >= 0) keep_wake_fd(me.wake_fd);
  hot_until_ = now() + patience_;
  return how;
}

void Loop::leave_baton() {
  baton_ = Baton::kFree;
  asleep_ = false;
  left_at_ = now();
  hot_until_ = left_at_ + patience_;
  hand_on();
}

/// Offers the free baton to the first waiter in line, or wakes the background thread if that has work. After a stop or
/// a breakdown no thread drives any more, and all waiters are woken. Under mutex_.
void Loop::hand_on() {
  if (stopping_ || defect() != nullptr) {
    wake_line(/*all=*/true);
  } else if (!line_.empty()) {
    Waiter& next = line_.first();
    line_.remove(next);
    waiting_.fetch_sub(1, std::memory_order_acq_rel);
    next.woken = true;
    if (next.wake_fd >= 0) eventfd_write(next.wake_fd, 1);
  } else if (resting_ || !queue_.empty()) {
    background_cv_.notify_one();
  }
}

bool Loop::wake_waiters() noexcept {
  const bool off_the_loop = !driven_by_me();
  // A read-modify-write: either it follows the waiter's own and sees it, or the waiter sees all that was done before.
  if (waiting_.fetch_add(0, std::memory_order_acq_rel) == 0 && !off_the_loop) return false;
  Lock lock(mutex_);
  const bool any = wake_line(/*all=*/false);
  if (!off_the_loop || baton_ != Baton::kCaller) return any;
  news_.store(true, std::memory_order_relaxed);  // the driver may have checked done() too early, and not be asleep yet
  if (std::exchange(asleep_, false)) uv_async_send(&wake_up_);
  return any;
}

/// Wakes the waiters that are done, or all. Removes them from the line here, so that the background thread steps back
/// at once.
bool Loop::wake_line(bool all) noexcept {
  int left = 0;
  for (Waiter* next = line_.empty() ? nullptr : &line_.first(); next != nullptr;) {
    Waiter& waiter = *std::exchange(next, next->behind);
    if (!all && !(*waiter.done)()) continue;
    line_.remove(waiter);
    ++left;
    waiter.woken = true;
    if (waiter.wake_fd >= 0) eventfd_write(waiter.wake_fd, 1);
  }
  if (left == 0) return false;
  waiting_.fetch_sub(left, std::memory_order_acq_rel);
  hot_until_ = now() + patience_;
  return true;
}

int Loop::take_wake_fd() {
  if (spare_wake_fd_count_ > 0) return spare_wake_fds_[--spare_wake_fd_count_];
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd >= 0 && !descriptors_.try_add(fd)) return ::close(fd), -1;  // the caller polls instead
  return fd;
}

void Loop::keep_wake_fd(int fd) {
  if (spare_wake_fd_count_ < spare_wake_fds_.size()) {
    spare_wake_fds_[spare_wake_fd_count_++] = fd;
    return;
  }
  descriptors_.remove(fd);
  ::close(fd);
}

}  // namespace mv::transport
