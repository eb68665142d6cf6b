#pragma once
// The libuv event loop of a node, and the baton that decides which thread drives it.
//
// At most one thread drives the loop at a time: the holder of the baton. Usually that is the background thread, asleep
// in epoll. If it had to wake a caller that waits for an answer, one round trip would take two hand-offs between
// threads, each as expensive as the network. A waiting caller therefore takes the baton when it is free: it writes the
// request, waits for the socket and reads the answer itself. After each such call the background thread leaves the
// baton free for a short while (patience_), so that the next call of a burst can take it.
//
//   baton_ kFree          no thread drives; after patience_ the background thread takes the baton
//          kBackground    the background thread drives
//          kCaller        a thread in drive_until() drives; other callers wait in line_ and are woken when they are done,
//                         or when the baton becomes free
//
// "On the loop" means: by the thread that holds the baton; before start(); or after stop().
//
// Waking the driver: news_ is set if a task was posted, or a call completed on another thread, since the driver last
// took the queue. A driver clears news_, then runs the tasks, then checks done(), and sleeps only if news_ is still
// clear when it sets asleep_ under the mutex. A completion on another thread first makes done() true, then sets news_
// under the mutex, and wakes the driver if asleep_ is set. The driver therefore sees done(), or does not sleep, or is
// woken. tests/models/baton.pml is the model of this protocol.
//
// Exceptions: nothing that runs on the loop may throw into libuv or into the caller that happens to drive. Every task,
// callback and flusher runs inside guard(). An exception breaks the loop down: engines and transports may be halfway
// through a change, so none of them runs again. Every wait ends with Driven::kBroken, defect() returns the reason, and
// stop() works.

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
#include "transport/loop/spin_policy.hpp"
#include "transport/loop/task.hpp"

namespace mv::transport {

/// How a drive_until() ended. kBroken: Loop::defect() has the reason; no part of the call runs any more.
enum class Driven { kDone, kTimeout, kInterrupted, kStopped, kBroken };

/// Writes queued messages. The loop calls it whenever it is about to block, so that the messages of one turn leave
/// together.
class Flusher {
 public:
  virtual void flush() = 0;
  /// The loop is about to sleep, or to run what is due: the time to set its timer. Comes less often than flush().
  virtual void prepare_poll() {}

 protected:
  ~Flusher() = default;
};

/// Memory that peers write to. Polling it takes no system call, and finds the messages that a sleep would wait for. All
/// calls on the loop.
class Watched {
 public:
  /// Processes what has arrived; true if there was anything.
  virtual bool poll() = 0;
  /// The loop is about to sleep, so peers must ring the bell from now on. False if something arrived before the peers
  /// could know that; the effect is then undone, as by after_sleep().
  virtual bool before_sleep() = 0;
  virtual void after_sleep() = 0;
  /// Where the writers run: none exist, all share this processor, or at least one runs on another processor.
  enum class Writers { kNone, kHere, kElsewhere };
  virtual Writers writers() const = 0;

 protected:
  ~Watched() = default;
};

/// Sockets of which some have received messages lately. A spinning caller tries to read from them. Each try takes a
/// system call; a sleep takes three, and the wake-up of a processor. All calls on the loop.
class BusySockets {
 public:
  /// A spin begins. False if no socket is worth a try.
  virtual bool begin_reading() = 0;
  /// Processes what has arrived; true if there was anything.
  virtual bool read() = 0;

 protected:
  ~BusySockets() = default;
};

struct Interruptions;

class Loop final : public base::Clock {
 public:
  Loop();
  ~Loop() override;  ///< after stop() and after the end of everything that uses the loop
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// The result of the constructor. After MV_ESYSTEM only the destructor may be called.
  const base::Status& ready() const { return ready_; }
  /// Sets the longest time for which a driver spins on watched memory and sockets before it sleeps; see spin_policy.hpp.
  /// On crowded processors it yields, and the limit is kCrowdedBudget times as long. 0: never.
  /// Before start().
  void set_spin(base::Nanos limit) { spin_policy_ = SpinPolicy(limit); }
  /// Enables busy(), which reads the clock around each call and each sleep. Before start().
  void keep_time() { keeps_time_ = true; }
  /// Starts the background thread, which blocks all signals. MV_ESYSTEM.
  base::Status start();
  /// Ends the background thread and all calls of drive_until(), which return Driven::kStopped; returns when all have
  /// left. Drops the tasks that have not run. Not on the loop. Idempotent.
  void stop();

  /// Monotonic. Any thread.
  base::Nanos now() const override;
  /// Runs `task` on the loop soon, in the order of the posts; drops it after stop() or a breakdown. Any thread; never
  /// blocks. May throw std::bad_alloc; the task is then not posted. Returns the number of this post, see posts(); 0 if it
  /// was dropped.
  uint64_t post(Task task);
  /// The number of tasks that were posted so far. A thread that has posted a task sees at least the number of that one.
  uint64_t posts() const { return posts_.load(std::memory_order_relaxed); }
  /// Like post(), for threads that cannot report an error: if memory runs out, the loop breaks down.
  void post_or_break(Task task) noexcept;
  /// Posts `first`, if given, and returns when done() is true, when `deadline` has passed, or on a signal; `first` may
  /// not have run by then. Drives the loop itself if no other thread does. Any thread that is not on the loop. This and
  /// other threads call `done`, which must neither lock nor throw. May throw std::bad_alloc; `first` then never runs.
  Driven drive_until(const std::function<bool()>& done, base::Nanos deadline, Task first = {});
  /// Wakes the callers in drive_until() that are done. Any thread. On the loop it costs nothing while no caller waits
  /// in line; off the loop it must be called after every completion. Returns whether there were any.
  bool wake_waiters() noexcept;
  /// Whether the calling thread holds this loop's baton.
  bool driven_by_me() const noexcept;
  /// Whether the calling thread holds any loop's baton.
  static bool driven_by_this_thread() noexcept;

  /// Why the loop has broken down; null if it has not. Any thread.
  const base::Status* defect() const noexcept { return defect_.load(std::memory_order_acquire); }
  /// Sets the function that notifies peers and waiters elsewhere of a breakdown. It runs once, on the thread that
  /// breaks the loop down. It must neither throw nor touch anything that belongs to the loop. Before start().
  void on_breakdown(std::function<void(const base::Status& why)> fn) { on_breakdown_ = std::move(fn); }
  /// Breaks the loop down because of this exception; null stands for an unknown one. Any thread.
  void break_down(const std::exception* thrown) noexcept;

  // ---- on the loop

  /// Runs `work` unless the loop has broken down; an exception from it breaks the loop down. Wraps everything that
  /// libuv or a driver calls.
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
  /// Sets the engines' only timer: `fn` runs once, at `at`, to about a millisecond. kNever disarms it. Replaces the
  /// last one.
  void set_timer(base::Nanos at, Task fn);
  void add_flusher(Flusher& flusher) { flushers_.push_back(&flusher); }
  void remove_flusher(Flusher& flusher) { std::erase(flushers_, &flusher); }
  void add_watched(Watched& watched) { watched_.push_back(&watched); }
  void remove_watched(Watched& watched) { std::erase(watched_, &watched); }
  void add_sockets(BusySockets& sockets) { sockets_.push_back(&sockets); }
  void remove_sockets(BusySockets& sockets) { std::erase(sockets_, &sockets); }
  /// The eventfd that peers ring after Watched::before_sleep(); -1 if the process has no descriptor left for it.
  int bell() const { return bell_; }
  uv_loop_t& uv() { return uv_; }
  /// How long threads have driven this loop without sleeping, since keep_time().
  base::Nanos busy() const;
  /// To be called after each change of watchers: libuv passes changes to the kernel only inside uv_run(), and a driver
  /// would otherwise sleep through the new events.
  void watchers_changed() { watchers_changed_ = true; }

  /// The registry for the descriptors of everything on this loop.
  base::Descriptors& descriptors() { return descriptors_; }
  /// Ends all connections and stops listening, but leaves the descriptors open for their owners. Any thread; allocates
  /// nothing.
  void shut_down_sockets() noexcept;
  /// In a forked child: closes all descriptors without changing the kernel's epoll set, which the parent shares.
  /// Async-signal-safe. Afterwards the child must leak the loop and its transports.
  void abandon_after_fork() noexcept { descriptors_.close_all(); }

 private:
  enum class Baton { kFree, kBackground, kCaller };
  struct Waiter {
    const std::function<bool()>* done;
    int wake_fd;         // an eventfd
    bool woken = false;  // no longer in line_
    Waiter* before = nullptr;
    Waiter* behind = nullptr;
  };
  /// The waiters in the order of their arrival. An intrusive list, because a caller whose call is in progress must not
  /// fail for lack of memory.
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
  bool wake_line(bool all) noexcept;
  uint64_t queue(Task task);
  void run_tasks();
  void poll_now();
  void flush();
  void prepare_poll();
  bool sleep(base::Nanos most, const Interruptions& open);
  bool poll_watched();
  bool has_events() const;
  bool spin(bool reads);
  bool begin_reading();
  bool read_sockets();
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

  // How long the background thread leaves a loop to its callers. The longer a burst of calls lasts, the less often the
  // thread checks, because on a busy processor a check costs a caller as much as a call.
  static constexpr base::Nanos kLeastPatience = std::chrono::microseconds(250);
  static constexpr base::Nanos kMostPatience = std::chrono::milliseconds(2);

  // How long a sequence of calls that end at once may leave sockets and timers unpolled. No other thread polls them
  // during the sequence: peers would wait for this process, and declare it dead.
  static constexpr base::Nanos kLongestUnpolled = std::chrono::microseconds(250);
  // The number of successful polls of shared memory and sockets in a row before libuv and signals get their turn.
  static constexpr int kMostPolls = 32;
  // A read of sockets and a yield that take longer have let another thread run.
  static constexpr base::Nanos kYielded = std::chrono::microseconds(4);
  static constexpr int kCrowdedSpins = 64;
  // Such a spin may last this many times the spin limit, because each other thread needs a turn before the answer can come.
  // A hand-over by yielding takes 1 to 4 microseconds, a sleep and a wake-up tens. The value is a guess that was good on one
  // machine: four ranks on two processors reduced 1 KiB over TCP in a fifth less time. The spin policy's counts of failures
  // limit its cost.
  static constexpr int kCrowdedBudget = 4;
  // How often a spin asks whether libuv has events. The spin itself reads only watched memory and busy sockets, but the awaited
  // message may come from another socket: for example, when a broadcast follows all-reduces. Asking takes about 0.3 microseconds.
  static constexpr base::Nanos kLookEvery = std::chrono::microseconds(10);
  // If so many such spins in a row found nothing before they yielded, as where all processes share one processor, the next ones
  // yield first, which saves a system call; but one in kEarlySkips tries again.
  static constexpr int kEarlyMisses = 4;
  static constexpr unsigned kEarlySkips = 32;

  uv_loop_t uv_{};
  uv_async_t wake_up_{};
  uv_timer_t timer_{};
  int bell_ = -1;
  base::Status ready_;  // result of the constructor
  base::Descriptors descriptors_;

  // On the loop.
  std::vector<Flusher*> flushers_;
  std::vector<Watched*> watched_;
  std::vector<BusySockets*> sockets_;
  std::vector<Task> running_;
  base::Nanos timer_at_ = base::kNever;
  Task timer_fn_;
  bool watchers_changed_ = true;
  SpinPolicy spin_policy_{base::Nanos{0}};
  base::Nanos poll_by_{0};
  int polls_ = 0;  // successful ones in a row since libuv was last polled
  unsigned wakes_ = 0;
  int early_misses_ = 0;
  unsigned early_skips_ = 0;
  int crowded_ = 0;  // spins on sockets that are to yield from the beginning, because other threads need the processor
  base::TickClock ticks_;
  bool keeps_time_ = false;
  uint64_t working_since_ = 0, worked_ = 0;  // ticks

  // What defect() returns: allocated in advance, because there may be no memory for it later.
  base::Status out_of_memory_, thrown_;
  std::atomic<const base::Status*> defect_{nullptr};
  std::function<void(const base::Status&)> on_breakdown_;

  std::mutex mutex_;
  // Under mutex_.
  std::vector<Task> queue_;
  std::atomic<uint64_t> posts_{0};     // written under mutex_
  Baton baton_ = Baton::kFree;
  bool asleep_ = false;                // the driver sleeps in poll, or is about to: news must wake it
  std::atomic<bool> news_{false};      // written under mutex_, read without it by a spinning driver. See the top
  bool resting_ = false;               // the background thread waits for background_cv_ without a time limit
  std::atomic<bool> stopping_{false};  // written under mutex_, read without it by a driver
  int callers_ = 0;                    // number of threads in drive_until()
  std::condition_variable callers_out_;
  uint64_t drives_ = 0;       // number of times that a caller took the baton
  uint64_t seen_drives_ = 0;  // drives_ when the background thread last checked
  base::Nanos patience_ = kLeastPatience;
  base::Nanos left_at_{0};    // when a caller last returned the baton
  base::Nanos hot_until_{0};  // until then the background thread leaves an idle loop to callers
  Line line_;
  std::array<int, 16> spare_wake_fds_{};
  size_t spare_wake_fd_count_ = 0;
  std::condition_variable background_cv_;

  std::atomic<int> waiting_{0};  // size of line_, for wake_waiters()
  std::thread background_;
};

}  // namespace mv::transport
