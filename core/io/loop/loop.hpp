#pragma once
// The one libuv loop of a node, and who drives it.
//
// At any moment at most one thread drives the loop: it holds the baton. Usually that is the background thread, asleep in
// epoll. But a caller who waits for an answer would then be woken by it: two hand-offs between threads for one round trip,
// each as dear as the network. So a waiting caller takes the baton when it is free: it writes the request, waits for the
// socket and reads the answer itself. The background thread leaves the baton alone for a short while (patience_) after each
// such call, so that the next call of a burst finds it free.
//
//   baton_ kFree          nobody drives; after patience_ of that the background thread takes over
//          kBackground    the background thread drives
//          kCaller        a thread in drive_until() drives; other callers wait in line_ and are woken when they are done,
//                         or when the baton falls free
//
// "On the loop" means: by the thread that holds the baton; before start(); or after stop().

#include <uv.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/descriptors.hpp"
#include "base/result.hpp"
#include "base/tick_clock.hpp"
#include "io/loop/spin.hpp"
#include "io/loop/task.hpp"

namespace mv::io {

/// How a drive_until() ended.
enum class Driven { kDone, kTimeout, kInterrupted, kStopped };

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

class Loop final : public base::Clock {
 public:
  Loop();
  ~Loop() override;  ///< after stop(); everything that uses the loop is gone by now
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

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
  /// Runs `task` on the loop, soon, in the order of the posts. Any thread; never blocks.
  void post(Task task);
  /// Runs `first`, if given, on the loop, and returns when `done()`, `deadline` or a signal comes; `first` may then still have to
  /// run. Drives the loop itself when nobody else does. Any thread that is not on the loop. `done` is called by this and other
  /// threads, and must not lock.
  Driven drive_until(const std::function<bool()>& done, base::Nanos deadline, Task first = {});
  /// Wakes the callers in drive_until() who are done. Only needed where something was done off the loop. Any thread.
  void wake_waiters();
  /// Whether the calling thread holds this loop's baton.
  bool driven_by_me() const noexcept;

  // ---- on the loop

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
  /// In a forked child: closes all descriptors, without a word to the kernel's epoll, which the parent shares.
  /// Async-signal-safe; nothing but leaking the loop and its roads may follow.
  void abandon_after_fork() noexcept { descriptors_.close_all(); }

 private:
  enum class Baton { kFree, kBackground, kCaller };
  struct Waiter {
    const std::function<bool()>* done;
    int wake_fd;         // an eventfd
    bool woken = false;  // and no longer in line_
  };
  using Lock = std::unique_lock<std::mutex>;

  void run_background();
  Driven drive_in_turn(Lock& lock, const std::function<bool()>& done, base::Nanos deadline, const sigset_t& open);
  Driven drive(const std::function<bool()>& done, base::Nanos deadline, const sigset_t& open);
  std::optional<Driven> wait_in_line(Lock& lock, const std::function<bool()>& done, base::Nanos deadline,
                                     const sigset_t& open);
  void step_back(Lock& lock);
  void leave_baton();
  void hand_on();
  void wake_line(bool all);
  void run_tasks();
  void poll_now();
  void flush();
  bool sleep(base::Nanos most, const sigset_t& open);
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

  // How long the background thread leaves a loop alone that callers drive. The longer a burst of calls lasts, the less often
  // it looks, for on a busy processor a look costs a caller as much as a call.
  static constexpr base::Nanos kLeastPatience = std::chrono::microseconds(250);
  static constexpr base::Nanos kMostPatience = std::chrono::milliseconds(2);

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
  int looks_ = 0;  // that found something, since libuv was asked
  base::TickClock ticks_;
  bool keeps_time_ = false;
  uint64_t working_since_ = 0, worked_ = 0;  // ticks

  std::mutex mutex_;
  // Under mutex_.
  std::vector<Task> queue_;
  Baton baton_ = Baton::kFree;
  bool asleep_ = false;                // the driver sleeps in poll, or is about to: wake it for new work
  bool resting_ = false;               // the background thread waits for background_cv_ without a limit
  std::atomic<bool> stopping_{false};  // written under mutex_; a driver reads it without
  int callers_ = 0;                    // in drive_until()
  std::condition_variable callers_out_;
  uint64_t drives_ = 0;       // by callers
  uint64_t seen_drives_ = 0;  // when the background thread last looked
  base::Nanos patience_ = kLeastPatience;
  base::Nanos hot_until_{0};  // the background thread leaves the baton alone until then
  std::vector<Waiter*> line_;
  std::vector<int> spare_wake_fds_;
  std::condition_variable background_cv_;

  std::atomic<bool> has_tasks_{false};  // in queue_, for a driver that spins
  std::atomic<int> waiting_{0};  // entries of line_, for wake_waiters()
  std::thread background_;
};

}  // namespace mv::io
