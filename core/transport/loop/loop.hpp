#pragma once
// The one libuv loop of a node, and the baton that decides which thread drives it.
//
// At any moment at most one thread drives the loop: it holds the baton. Usually that is the background thread, asleep in
// epoll. But a caller that waits for an answer would then be woken by it: two hand-offs between threads for one round trip,
// each as expensive as the network. So a waiting caller takes the baton when it is free: it writes the request, waits for the
// socket and reads the answer itself. The background thread leaves the baton alone for a short while (patience_) after each
// such call, so that the next call of a burst finds it free.
//
//   baton_ kFree          nobody drives; after patience_ of that the background thread takes over
//          kBackground    the background thread drives
//          kCaller        a thread in drive_until() drives; other callers wait in line_ and are woken when they are done,
//                         or when the baton falls free
//
// "On the loop" means: by the thread that holds the baton; before start(); or after stop().
//
// Waking the driver: news_ says that a task was posted, or a call completed on another thread, since the driver last took the
// queue. A driver clears news_, then runs the tasks, then asks done(), and sleeps only if news_ is still clear when it sets
// asleep_ under the mutex. A completion on another thread sets done() first and news_ after that, under the mutex, and wakes the
// driver if asleep_ is set. So either the driver sees done(), or it does not sleep, or it is woken. tests/models/baton.pml is the model of it.
//
// Exceptions: nothing that runs on the loop may throw into libuv or into the caller that happens to drive. Every task, callback and
// flusher runs inside guard(). What it throws breaks the loop down: engines and transports may be halfway through a change, so none of them
// runs again. Every wait ends with Driven::kBroken, defect() tells why, and stop() works.

#include <uv.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "base/result.hpp"
#include "base/tick_clock.hpp"
#include "transport/loop/spin.hpp"
#include "transport/loop/task.hpp"

namespace mv::transport {

/// How a drive_until() ended. kBroken: Loop::defect() tells why; nothing of the call runs any more.
enum class Driven { kDone, kTimeout, kInterrupted, kStopped, kBroken };

/// Sends what was queued. Called on the loop whenever it is about to block, so that all that one turn sends leaves together.
class Flusher {
 public:
  virtual void flush() = 0;

 protected:
  ~Flusher() = default;
};

/// Memory that peers write to: looking there costs no system call, and finds what a sleep would wait for. All on the loop.
class Watched {
 public:
  /// Works off what has come; true if there was anything.
  virtual bool look() = 0;
  /// The loop is about to sleep: peers have to ring from now on. False, and as if after_sleep() was called, if something came
  /// before they knew.
  virtual bool before_sleep() = 0;
  virtual void after_sleep() = 0;
  /// Who may write there: somebody who runs on another processor, or only such as have to share this one.
  enum class Writers { kNone, kHere, kElsewhere };
  virtual Writers writers() const = 0;

 protected:
  ~Watched() = default;
};

struct Interruptions;

class Loop final : public base::Clock {
 public:
  Loop();
  ~Loop() override;  ///< after stop(); everything that uses the loop is gone by now
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Of the constructor. MV_ESYSTEM: nothing but the destructor may follow.
  const base::Status& ready() const { return ready_; }
  /// How long a driver looks at watched memory before it sleeps, at most; see spin.hpp. 0: not at all. Before start().
  void set_spin(base::Nanos limit) { spin_ = Spin(limit); }
  /// From now on busy() is counted, for which the clock is looked at around each call and sleep. Before start().
  void keep_time() { keeps_time_ = true; }
  /// Starts the background thread, which blocks all signals. MV_ESYSTEM.
  base::Status start();
  /// Ends the background thread and whoever is in drive_until(), who gets Driven::kStopped; returns when all are out. Tasks that
  /// have not run are dropped and never will be run. Not on the loop. Idempotent.
  void stop();

  /// Monotonic. Any thread.
  base::Nanos now() const override;
  /// Runs `task` on the loop, soon, in the order of the posts; drops it after stop() or a breakdown. Any thread; never blocks.
  /// Throws std::bad_alloc, and has then posted nothing.
  void post(Task task);
  /// post() for threads that have nobody to tell: without memory the loop breaks down.
  void post_or_break(Task task) noexcept;
  /// Runs `first`, if given, on the loop, and returns when `done()`, `deadline` or a signal comes; `first` may then still have to
  /// run. Drives the loop itself when nobody else does. Any thread that is not on the loop. `done` is called by this and other
  /// threads, and must neither lock nor throw. Throws std::bad_alloc, and will then not run `first`.
  Driven drive_until(const std::function<bool()>& done, base::Nanos deadline, Task first = {});
  /// Wakes the callers in drive_until() that are done. Any thread: on the loop it costs nothing while nobody waits in line, and off
  /// the loop it is needed after every completion.
  void wake_waiters() noexcept;
  /// Whether the calling thread holds this loop's baton.
  bool driven_by_me() const noexcept;

  /// Why the loop has broken down; null while it is sound. Any thread.
  const base::Status* defect() const noexcept { return defect_.load(std::memory_order_acquire); }
  /// `fn` runs once, when the loop breaks down, on the thread that finds out: to tell peers and waiters elsewhere. It must neither
  /// throw nor touch what belongs to the loop. Before start().
  void on_breakdown(std::function<void(const base::Status& why)> fn) { on_breakdown_ = std::move(fn); }
  /// Breaks the loop down, because of this exception, or an unknown one where it is null. Any thread.
  void break_down(const std::exception* thrown) noexcept;

  // ---- on the loop

  /// Runs `work`, unless the loop has broken down; what it throws breaks the loop down. Around everything that libuv or a driver calls.
  template <typename Work>
  void guard(Work&& work) noexcept {
    if (defect() != nullptr) return;
    try {
      work();
    } catch (const std::exception& thrown) {
      break_down(&thrown);
    } catch (...) {
      break_down(nullptr);
    }
  }
  /// The engines' one timer: `fn` runs once `at` has come, to about a millisecond; kNever disarms it. Replaces the last one.
  void set_timer(base::Nanos at, Task fn);
  void add_flusher(Flusher& flusher) { flushers_.push_back(&flusher); }
  void remove_flusher(Flusher& flusher) { std::erase(flushers_, &flusher); }
  void add_watched(Watched& watched) { watched_.push_back(&watched); }
  void remove_watched(Watched& watched) { std::erase(watched_, &watched); }
  /// An eventfd for peers to ring when Watched::before_sleep() has told them to; -1 if there is none to be had.
  int bell() const { return bell_; }
  uv_loop_t& uv() { return uv_; }
  /// How long somebody has driven this loop and not slept, since keep_time().
  base::Nanos busy() const;
  /// libuv tells the kernel of changed watchers only inside uv_run(): to be called after each change, or a driver sleeps past it.
  void watchers_changed() { watchers_changed_ = true; }

  /// Where everything on this loop registers its descriptors.
  base::Descriptors& descriptors() { return descriptors_; }
  /// Ends all connections and stops listening, but leaves the descriptors open, with their owners. Any thread; allocates nothing.
  void shut_down_sockets() noexcept;
  /// In a forked child: closes all descriptors, without a word to the kernel's epoll, which the parent shares.
  /// Async-signal-safe; nothing but leaking the loop and its transports may follow.
  void abandon_after_fork() noexcept { descriptors_.close_all(); }

 private:
  enum class Baton { kFree, kBackground, kCaller };
  struct Waiter {
    const std::function<bool()>* done;
    int wake_fd;         // an eventfd
    bool woken = false;  // and no longer in line_
    Waiter* before = nullptr;
    Waiter* behind = nullptr;
  };
  /// Waiters in the order in which they came. They link themselves: a caller whose call is under way must not fail for lack of memory.
  class Line {
   public:
    bool empty() const { return first_ == nullptr; }
    Waiter& first() const { return *first_; }
    void push(Waiter& waiter) {
      waiter.before = last_;
      (last_ != nullptr ? last_->behind : first_) = &waiter;
      last_ = &waiter;
    }
    void remove(Waiter& waiter) {
      (waiter.before != nullptr ? waiter.before->behind : first_) = waiter.behind;
      (waiter.behind != nullptr ? waiter.behind->before : last_) = waiter.before;
    }

   private:
    Waiter* first_ = nullptr;
    Waiter* last_ = nullptr;
  };
  using Lock = std::unique_lock<std::mutex>;
  class Caller;
  class BatonHold;

  void run_background();
  Driven drive_in_turn(Lock& lock, const std::function<bool()>& done, base::Nanos deadline, const Interruptions& open);
  Driven drive(const std::function<bool()>& done, base::Nanos deadline, const Interruptions& open);
  std::optional<Driven> wait_in_line(Lock& lock, const std::function<bool()>& done, base::Nanos deadline,
                                     const Interruptions& open);
  void step_back(Lock& lock);
  void leave_baton();
  void hand_on();
  void wake_line(bool all) noexcept;
  void queue(Task task);
  void run_tasks();
  void poll_now();
  void flush();
  bool sleep(base::Nanos most, const Interruptions& open);
  bool look();
  bool spin();
  bool is_quiet();
  bool may_sleep();
  void after_sleep();
  void begin_work() {
    if (keeps_time_) working_since_ = ticks_.read();
  }
  void end_work() {
    if (keeps_time_) worked_ += ticks_.read() - working_since_;
  }
  void on_timer();
  int take_wake_fd();
  void keep_wake_fd(int fd);

  // How long the background thread leaves a loop alone that callers drive. The longer a burst of calls lasts, the less often
  // it looks, for on a busy processor a look costs a caller as much as a call.
  static constexpr base::Nanos kLeastPatience = std::chrono::microseconds(250);
  static constexpr base::Nanos kMostPatience = std::chrono::milliseconds(2);

  // How long calls that are over at once may go without a look at sockets and timers. While they follow each other, nobody else looks: peers would
  // wait for this process, and take it for dead.
  static constexpr base::Nanos kLongestUnpolled = std::chrono::microseconds(250);

  uv_loop_t uv_{};
  uv_async_t wake_up_{};
  uv_timer_t timer_{};
  int bell_ = -1;
  base::Status ready_;  // of the constructor
  base::Descriptors descriptors_;

  // On the loop.
  std::vector<Flusher*> flushers_;
  std::vector<Watched*> watched_;
  std::vector<Task> running_;
  base::Nanos timer_at_ = base::kNever;
  Task timer_fn_;
  bool watchers_changed_ = true;
  Spin spin_{base::Nanos{0}};
  base::Nanos poll_by_{0};
  int looks_ = 0;  // that found something, since libuv was asked
  base::TickClock ticks_;
  bool keeps_time_ = false;
  uint64_t working_since_ = 0, worked_ = 0;  // ticks

  // What defect() shows: made beforehand, since there may be no memory for it later.
  base::Status out_of_memory_, thrown_;
  std::atomic<const base::Status*> defect_{nullptr};
  std::function<void(const base::Status&)> on_breakdown_;

  std::mutex mutex_;
  // Under mutex_.
  std::vector<Task> queue_;
  Baton baton_ = Baton::kFree;
  bool asleep_ = false;                // the driver sleeps in poll, or is about to: wake it for news
  std::atomic<bool> news_{false};      // written under mutex_; a driver that spins reads it without. See the top
  bool resting_ = false;               // the background thread waits for background_cv_ without a limit
  std::atomic<bool> stopping_{false};  // written under mutex_; a driver reads it without
  int callers_ = 0;                    // in drive_until()
  std::condition_variable callers_out_;
  uint64_t drives_ = 0;       // by callers
  uint64_t seen_drives_ = 0;  // when the background thread last looked
  base::Nanos patience_ = kLeastPatience;
  base::Nanos left_at_{0};    // when a caller last gave the baton back
  base::Nanos hot_until_{0};  // the background thread leaves the baton alone until then
  Line line_;
  std::array<int, 16> spare_wake_fds_{};
  size_t spare_wake_fd_count_ = 0;
  std::condition_variable background_cv_;

  std::atomic<int> waiting_{0};  // entries of line_, for wake_waiters()
  std::thread background_;
};

}  // namespace mv::transport
