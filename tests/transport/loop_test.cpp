// transport/loop: posts, the timer, and the baton between the background thread and waiting callers.

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "transport/loop/handles.hpp"
#include "transport/loop/loop.hpp"

#include "cmocka.hpp"

namespace {
thread_local int allocations;
}
#if !defined(__SANITIZE_ADDRESS__)  // the sanitizer replaces these functions itself
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace {

using namespace mv::transport;
using namespace std::chrono_literals;
using mv::base::kNever;
using mv::base::Nanos;

constexpr Nanos kPatience = 20s;

struct StartedLoop {
  StartedLoop() {
    if (!it.start().ok()) abort();
  }
  ~StartedLoop() { it.stop(); }
  Driven wait(const std::function<bool()>& done, Task first = {}, Nanos limit = kPatience) {
    return it.drive_until(done, it.now() + limit, std::move(first));
  }
  void post(Task task) { it.post(std::move(task)); }
  Nanos now() const { return it.now(); }
  Loop it;
};

/// Echoes through the kernel: each request comes back as an event on the loop, like an answer from a socket.
class Echo {
 public:
  explicit Echo(Loop& loop) : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    poll_ = Poll::make(loop, fd_, [this](int) {
      eventfd_t count;
      if (eventfd_read(fd_, &count) == 0) answered += count;
    });
    poll_->watch(UV_READABLE);
  }
  ~Echo() {
    poll_.reset();
    close(fd_);
  }
  void ask() { eventfd_write(fd_, 1); }
  std::atomic<uint64_t> answered{0};

 private:
  const int fd_;
  std::unique_ptr<Poll> poll_;
};

void a_task_holds_small_and_large_captures(void**) {
  struct Counted {
    explicit Counted(int* n) : n(n) { ++*n; }
    Counted(Counted&& other) noexcept : n(std::exchange(other.n, nullptr)) {}
    Counted(const Counted&) = delete;
    ~Counted() {
      if (n != nullptr) --*n;
    }
    int* n;
  };
  int alive = 0, ran = 0;
  std::array<char, 500> large{};
  {
    Task small([c = Counted(&alive), &ran] { ran += 1; });
    Task big([c = Counted(&alive), large, &ran] { ran += 10 + large[0]; });
    Task moved = std::move(small);
    assert_false(static_cast<bool>(small));
    moved();
    big();
    big = std::move(moved);
    big();
    assert_int_equal(alive, 1);
  }
  assert_int_equal(ran, 12);
  assert_int_equal(alive, 0);
}

void posts_of_each_thread_run_in_their_order(void**) {
  StartedLoop loop;
  constexpr int kThreads = 4, kPosts = 20000;
  std::array<int, kThreads> last{};
  std::atomic<int> ran{0}, disorder{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 1; i <= kPosts; ++i) {
        loop.post([&, t, i] {
          if (last[t] != i - 1) ++disorder;
          last[t] = i;
          ++ran;
        });
      }
    });
  }
  for (auto& thread : threads) thread.join();
  assert_int_equal(loop.wait([&] { return ran == kThreads * kPosts; }), Driven::kDone);
  assert_int_equal(disorder, 0);
}

void a_post_never_waits_for_the_background_threads_rest(void**) {
  StartedLoop loop;
  Echo* echo = nullptr;
  std::atomic<bool> ready{false};
  loop.wait([&] { return ready.load(); },
            [&] {
              echo = new Echo(loop.it);
              ready = true;
            });
  for (int i = 0; i < 100; ++i) {
    const uint64_t before = echo->answered;
    loop.wait([&] { return echo->answered > before; }, [&] { echo->ask(); });  // the loop is hot: no thread drives it
    std::atomic<bool> ran{false};
    loop.post([&] { ran = true; });
    const Nanos posted = loop.now();
    while (!ran && loop.now() < posted + kPatience) std::this_thread::yield();
    assert_true(ran);
    const uint64_t again = echo->answered;
    echo->ask();  // an event without a post, while no thread drives
    while (echo->answered == again && loop.now() < posted + kPatience) std::this_thread::yield();
    assert_true(echo->answered > again);
  }
  ready = false;
  loop.wait([&] { return ready.load(); },
            [&] {
              delete echo;
              ready = true;
            });
}

/// The awaited event is already under way. A wait that fails for lack of memory would look like a call that was never made.
void a_wait_allocates_nothing(void**) {
  StartedLoop loop;
  std::atomic<int> waiting{0}, allocated{0};
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 40; ++t) {
    threads.emplace_back([&] {
      const std::function<bool()> is_done = [&] { return done.load(); };
      const int before = allocations;
      ++waiting;
      while (loop.it.drive_until(is_done, loop.now() + 1ms) != Driven::kDone) continue;
      allocated += allocations - before;
    });
  }
  while (waiting < 40) std::this_thread::yield();
  std::this_thread::sleep_for(20ms);
  done = true;
  loop.it.wake_waiters();
  for (std::thread& thread : threads) thread.join();
  assert_int_equal(allocated, 0);
}

void callers_share_the_baton(void**) {
  StartedLoop loop;
  constexpr int kThreads = 4, kCalls = 1500;
  std::unique_ptr<Echo> echo;
  std::atomic<bool> ready{false};
  loop.wait([&] { return ready.load(); },
            [&] {
              echo = std::make_unique<Echo>(loop.it);
              ready = true;
            });
  std::atomic<int> failed{0}, overlaps{0}, inside{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        std::atomic<uint64_t> seen{0};
        const auto ask = [&] {
          if (++inside != 1 || !loop.it.driven_by_me()) ++overlaps;
          seen = echo->answered + 1;
          echo->ask();
          --inside;
        };
        const auto answered = [&] { return seen != 0 && echo->answered >= seen; };
        if (loop.wait(answered, ask) != Driven::kDone) ++failed;
        if (t == 0 && i % 50 == 0)
          std::this_thread::sleep_for(1ms);  // lets the background thread take over now and then
      }
    });
  }
  for (auto& thread : threads) thread.join();
  assert_int_equal(failed, 0);
  assert_int_equal(overlaps, 0);
  ready = false;
  loop.wait([&] { return ready.load(); },
            [&] {
              echo.reset();
              ready = true;
            });
}

void a_wait_ends_at_its_deadline(void**) {
  StartedLoop loop;
  const Nanos begun = loop.now();
  assert_int_equal(loop.wait([] { return false; }, {}, 30ms), Driven::kTimeout);
  assert_true(loop.now() - begun >= 30ms);
  std::atomic<bool> release{false};
  std::thread other([&] { loop.wait([&] { return release.load(); }); });
  std::this_thread::sleep_for(10ms);
  assert_int_equal(loop.wait([] { return false; }, {}, 30ms), Driven::kTimeout);  // in line, behind the other
  loop.post([&] { release = true; });
  other.join();
}

void a_completion_off_the_loop_wakes_waiters_with_wake_waiters(void**) {
  StartedLoop loop;
  std::atomic<bool> first{false}, second{false};
  std::thread one([&] { assert_int_equal(loop.wait([&] { return first.load(); }), Driven::kDone); });
  std::thread two([&] { assert_int_equal(loop.wait([&] { return second.load(); }), Driven::kDone); });
  std::this_thread::sleep_for(20ms);
  first = second = true;  // one of them drives the loop, the other one waits in line
  loop.it.wake_waiters();
  one.join();
  two.join();
}

/// Sets `flag` from another thread, off the loop, and returns when it is set.
void complete_off_the_loop(Loop& loop, std::atomic<bool>& flag) {
  std::thread([&] {
    flag = true;
    loop.wake_waiters();
  }).join();
}

/// The driver reads the flag, then the other thread sets it, then the driver goes to sleep: it must not sleep.
void a_completion_between_the_last_look_and_the_sleep_wakes_the_driver(void**) {
  for (int look : {1, 2}) {  // the number of looks before it sleeps
    Loop loop;                // has no background thread, so this thread drives and calls done() without the loop's lock
    std::atomic<bool> flag{false};
    int looks = 0;
    const auto done = [&] {
      const bool seen = flag;
      if (++looks == look) complete_off_the_loop(loop, flag);
      return seen;
    };
    assert_int_equal(loop.drive_until(done, loop.now() + kPatience), Driven::kDone);  // nothing else would wake it before the deadline
  }
}

/// The same for a caller that waits in line behind another driver.
void a_completion_before_the_wait_in_line_wakes_the_waiter(void**) {
  StartedLoop loop;
  std::atomic<bool> driving{false}, release{false}, flag{false};
  std::thread driver([&] { loop.wait([&] { return release.load(); }, [&] { driving = true; }); });
  while (!driving) std::this_thread::yield();
  const std::thread::id waiter = std::this_thread::get_id();
  const auto done = [&] {
    const bool seen = flag;
    if (std::this_thread::get_id() == waiter && !flag) {
      flag = true;
      loop.it.wake_waiters();
    }
    return seen;
  };
  assert_int_equal(loop.wait(done), Driven::kDone);
  release = true;
  loop.it.wake_waiters();
  driver.join();
}

/// An exception on the loop ends every wait with its message, whichever thread drives. The loop still ends normally.
void an_exception_on_the_loop_breaks_it_down(void**) {
  for (const bool by_caller : {true, false}) {
    for (const bool no_memory : {true, false}) {
      StartedLoop loop;
      std::atomic<int> told{0}, ran{0}, broken{0};
      loop.it.on_breakdown([&](const mv::base::Status& why) { told = why.code(); });
      std::vector<std::thread> waiting;
      for (int i = 0; i < 3; ++i)
        waiting.emplace_back([&] { broken += loop.wait([] { return false; }) == Driven::kBroken; });
      const auto fail = [&] {
        if (no_memory) throw std::bad_alloc();
        throw std::runtime_error("a thrown error");
      };
      if (by_caller)
        assert_int_equal(loop.wait([] { return false; }, fail), Driven::kBroken);
      else
        loop.post(fail);
      for (auto& thread : waiting) thread.join();
      assert_int_equal(broken, 3);
      assert_int_equal(told, no_memory ? MV_ENOMEM : MV_EINTERNAL);
      assert_non_null(loop.it.defect());
      assert_int_equal(loop.it.defect()->code(), told);
      if (!no_memory) assert_non_null(strstr(loop.it.defect()->text().c_str(), "a thrown error"));
      loop.post([&] { ++ran; });
      assert_int_equal(loop.wait([&] { return ran > 0; }, [&] { ++ran; }), Driven::kBroken);
      assert_int_equal(ran, 0);
    }
  }
}

std::atomic<int> signals_seen{0};
void count_signal(int) { ++signals_seen; }

/// Sends signals to `thread` now and then until `enough` is true.
void pester(pthread_t thread, const std::atomic<bool>& enough) {
  while (!enough) {
    pthread_kill(thread, SIGUSR1);
    std::this_thread::sleep_for(1ms);
  }
}

void a_signal_interrupts_a_wait(void**) {
  struct sigaction action {};
  action.sa_handler = count_signal;
  action.sa_flags = SA_RESTART;  // as signal(2) sets it: poll(2) is interrupted nevertheless
  sigaction(SIGUSR1, &action, nullptr);
  StartedLoop loop;
  for (const bool in_line : {false, true}) {
    std::atomic<bool> release{false}, enough{false}, other_waits{!in_line};
    std::thread other;
    if (in_line) {
      other = std::thread([&] { loop.wait([&] { return release.load(); }, [&] { other_waits = true; }); });
      while (!other_waits) std::this_thread::yield();
    }
    const int before = signals_seen;
    std::thread sender(pester, pthread_self(), std::cref(enough));
    const Driven how = loop.wait([] { return false; });
    enough = true;
    sender.join();
    assert_int_equal(how, Driven::kInterrupted);
    assert_true(signals_seen > before);
    if (!in_line) continue;
    loop.post([&] { release = true; });
    other.join();
  }
}

void a_signal_just_before_a_wait_is_kept_for_it(void**) {
  StartedLoop loop;
  std::atomic<bool> raised{false};
  // Raised while this thread drives, between two sleeps: the signal is held back, and the next sleep delivers it.
  const pthread_t me = pthread_self();
  const Driven how = loop.wait([] { return false; },
                               [&] {
                                 if (!raised.exchange(true)) pthread_kill(me, SIGUSR1);
                               });
  assert_int_equal(how, Driven::kInterrupted);
}

void no_handler_runs_on_the_background_thread(void**) {
  StartedLoop loop;
  std::atomic<bool> checked{false}, blocked{false};
  loop.post([&] {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    blocked = sigismember(&mask, SIGINT) == 1 && sigismember(&mask, SIGUSR1) == 1;
    checked = true;
  });
  while (!checked) std::this_thread::yield();
  assert_true(blocked);
}

void the_timer_runs_once_when_due(void**) {
  StartedLoop loop;
  std::atomic<int> ran{0}, replaced{0};
  Nanos due{}, at{};
  loop.wait([&] { return ran == 1; },
            [&] {
              loop.it.set_timer(loop.now() + 5ms, [&] { ++replaced; });
              due = loop.now() + 30ms;
              loop.it.set_timer(due, [&] {
                at = loop.now();
                ++ran;
              });
            });
  assert_true(at >= due);
  assert_int_equal(replaced, 0);
  std::atomic<bool> armed{false};
  loop.wait([&] { return armed.load(); },
            [&] {
              loop.it.set_timer(loop.now() + 5ms, [&] { ++replaced; });
              loop.it.set_timer(kNever, {});
              armed = true;
            });
  std::this_thread::sleep_for(20ms);
  assert_int_equal(replaced, 0);
  // While no call is active, the background thread serves timers.
  loop.post([&] { loop.it.set_timer(loop.now() + 5ms, [&] { ++ran; }); });
  const Nanos begun = loop.now();
  while (ran < 2 && loop.now() < begun + kPatience) std::this_thread::yield();
  assert_int_equal(ran, 2);
}

/// Only the callers drive this loop, and none of their calls has to wait.
void calls_that_are_over_at_once_leave_time_for_timers(void**) {
  Loop loop;
  bool ran = false;
  static_cast<void>(loop.drive_until([] { return true; }, kNever, [&] { loop.set_timer(loop.now() + 2ms, [&] { ran = true; }); }));
  const Nanos until = loop.now() + 10s;
  while (!ran && loop.now() < until) static_cast<void>(loop.drive_until([] { return true; }, kNever));
  assert_true(ran);
}

/// The same for a timer that is set as late as possible.
void calls_that_are_over_at_once_leave_time_to_set_timers(void**) {
  struct Late final : Flusher {
    explicit Late(Loop& loop) : loop(loop) { loop.add_flusher(*this); }
    void flush() override {}
    void prepare_poll() override {
      if (!std::exchange(set, true)) loop.set_timer(loop.now() + 2ms, [this] { ran = true; });
    }
    Loop& loop;
    bool set = false, ran = false;
  };
  Loop loop;
  Late late(loop);
  const Nanos until = loop.now() + 10s;
  while (!late.ran && loop.now() < until) static_cast<void>(loop.drive_until([] { return true; }, kNever));
  assert_true(late.ran);
  loop.remove_flusher(late);
}

/// Checks that a timer runs while the loop is driven.
void expect_timer(Loop& loop) {
  bool ran = false;
  assert_int_equal(loop.drive_until([&] { return ran; }, loop.now() + kPatience, [&] { loop.set_timer(loop.now() + 2ms, [&] { ran = true; }); }),
                   Driven::kDone);
}

/// Checks that a signal to the driving thread ends its wait.
void expect_signal(Loop& loop) {
  struct sigaction action {};
  action.sa_handler = count_signal;
  sigaction(SIGUSR1, &action, nullptr);
  const Driven how = loop.drive_until([] { return false; }, loop.now() + kPatience, [me = pthread_self()] { pthread_kill(me, SIGUSR1); });
  assert_int_equal(how, Driven::kInterrupted);
}

struct FakeSockets final : BusySockets {
  explicit FakeSockets(Loop& loop) : loop(loop) { loop.add_sockets(*this); }
  ~FakeSockets() { loop.remove_sockets(*this); }
  bool begin_reading() override { return true; }
  bool read() override { return ++reads > empty_reads; }
  Loop& loop;
  int empty_reads = 0;
  std::atomic<int> reads{0};
};

void a_caller_that_spins_reads_busy_sockets(void**) {
  Loop loop;
  loop.set_spin(10s);
  FakeSockets sockets(loop);
  sockets.empty_reads = 100;
  assert_int_equal(loop.drive_until([&] { return sockets.reads > 100; }, loop.now() + kPatience), Driven::kDone);
  assert_int_equal(sockets.reads, 101);
}

void a_caller_that_spins_hears_from_other_sockets(void**) {
  Loop loop;
  loop.set_spin(2 * kPatience);
  const int fd = eventfd(0, EFD_NONBLOCK);
  assert_true(fd >= 0);
  struct Silent final : BusySockets {
    explicit Silent(int other) : fd(other) {}
    bool begin_reading() override { return true; }
    bool read() override {
      if (++reads == 100) assert_int_equal(eventfd_write(fd, 1), 0);
      return false;
    }
    const int fd;
    int reads = 0;
  } silent(fd);
  loop.add_sockets(silent);
  {
    bool heard = false;
    const auto poll = Poll::make(loop, fd, [&](int) { heard = true; });
    assert_true(poll != nullptr);
    poll->watch(UV_READABLE);
    assert_int_equal(loop.drive_until([&] { return heard; }, loop.now() + kPatience), Driven::kDone);
    assert_true(silent.reads >= 100);
  }
  loop.remove_sockets(silent);
  static_cast<void>(loop.drive_until([] { return false; }, loop.now() + 5ms));  // libuv closes the handle
  close(fd);
}

void sockets_that_are_always_busy_leave_time_for_timers_and_signals(void**) {
  Loop loop;
  loop.set_spin(10s);
  const FakeSockets sockets(loop);
  expect_timer(loop);
  expect_signal(loop);
}

/// Shared memory in which there is always something.
struct FullRing final : Watched {
  explicit FullRing(Loop& loop) : loop(loop) { loop.add_watched(*this); }
  ~FullRing() { loop.remove_watched(*this); }
  bool poll() override { return true; }
  bool before_sleep() override { return false; }
  void after_sleep() override {}
  Writers writers() const override { return Writers::kElsewhere; }
  Loop& loop;
};

void shared_memory_that_is_always_full_leaves_time_for_timers_and_signals(void**) {
  Loop loop;
  loop.set_spin(10s);
  const FullRing ring(loop);
  expect_timer(loop);
  expect_signal(loop);
}

void descriptors_that_are_always_ready_leave_time_for_signals(void**) {
  Loop loop;
  const int fd = eventfd(1, EFD_NONBLOCK);
  assert_true(fd >= 0);
  {
    const auto poll = Poll::make(loop, fd, [](int) {});
    assert_true(poll != nullptr);
    poll->watch(UV_READABLE);
    expect_signal(loop);
  }
  static_cast<void>(loop.drive_until([] { return false; }, loop.now() + 5ms));  // libuv closes the handle
  close(fd);
}

void a_descriptor_that_stays_ready_ends_spins(void**) {
  struct Ring final : Watched {
    bool poll() override { return false; }
    bool before_sleep() override { return ++sleeps, true; }
    void after_sleep() override {}
    Writers writers() const override { return Writers::kElsewhere; }
    int sleeps = 0;
  } ring;
  Loop loop;
  loop.set_spin(2 * kPatience);
  loop.add_watched(ring);
  const int fd = eventfd(1, EFD_NONBLOCK);
  assert_true(fd >= 0);
  {
    const auto poll = Poll::make(loop, fd, [](int) {});
    assert_true(poll != nullptr);
    poll->watch(UV_READABLE);
    assert_int_equal(loop.drive_until([&] { return ring.sleeps > 2; }, loop.now() + kPatience), Driven::kDone);
  }
  loop.remove_watched(ring);
  static_cast<void>(loop.drive_until([] { return false; }, loop.now() + 5ms));  // libuv closes the handle
  close(fd);
}

void only_callers_that_may_spin_read_sockets(void**) {
  Loop loop;
  loop.set_spin(Nanos{0});
  const FakeSockets unread(loop);
  assert_int_equal(loop.drive_until([] { return false; }, loop.now() + 5ms), Driven::kTimeout);
  assert_int_equal(unread.reads, 0);
  Loop background;
  background.set_spin(10s);
  const FakeSockets others(background);
  assert_true(background.start().ok());
  std::atomic<bool> ran{false};
  background.post([&] { ran = true; });
  while (!ran) std::this_thread::yield();
  background.stop();
  assert_int_equal(others.reads, 0);
}

void tasks_that_have_not_run_are_dropped_at_the_end(void**) {
  auto token = std::make_shared<int>(0);
  {
    Loop loop;
    for (int i = 0; i < 10; ++i) loop.post([token] { ++*token; });
    loop.stop();
    loop.post([token] { ++*token; });
  }
  assert_int_equal(*token, 0);
  assert_int_equal(token.use_count(), 1);
}

void the_end_of_a_loop_sends_its_callers_home(void**) {
  StartedLoop loop;
  std::atomic<int> waiting{0}, sent_home{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      if (loop.it.drive_until([] { return false; }, kNever, [&] { ++waiting; }) == Driven::kStopped) ++sent_home;
    });
  }
  while (waiting < 3) std::this_thread::yield();
  loop.it.stop();
  for (auto& thread : threads) thread.join();
  assert_int_equal(sent_home, 3);
}

void a_loop_needs_no_thread_of_its_own(void**) {
  Loop loop;
  std::atomic<int> ran{0};
  loop.post([&] { ++ran; });
  assert_int_equal(loop.drive_until([&] { return ran == 2; }, loop.now() + kPatience, [&] { ++ran; }), Driven::kDone);
}

void a_forked_child_closes_what_it_inherited(void**) {
  mv::base::Descriptors descriptors;
  std::vector<int> fds;
  for (int i = 0; i < 150; ++i) {
    fds.push_back(eventfd(0, EFD_CLOEXEC));
    descriptors.add(fds.back());
  }
  const int kept = fds[70];
  descriptors.remove(kept);
  descriptors.close_all();
  for (int fd : fds) assert_int_equal(fcntl(fd, F_GETFD) == -1, fd != kept);
  close(kept);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_task_holds_small_and_large_captures),
      cmocka_unit_test(posts_of_each_thread_run_in_their_order),
      cmocka_unit_test(a_post_never_waits_for_the_background_threads_rest),
      cmocka_unit_test(a_wait_allocates_nothing),
      cmocka_unit_test(callers_share_the_baton),
      cmocka_unit_test(a_wait_ends_at_its_deadline),
      cmocka_unit_test(a_completion_off_the_loop_wakes_waiters_with_wake_waiters),
      cmocka_unit_test(a_completion_between_the_last_look_and_the_sleep_wakes_the_driver),
      cmocka_unit_test(a_completion_before_the_wait_in_line_wakes_the_waiter),
      cmocka_unit_test(an_exception_on_the_loop_breaks_it_down),
      cmocka_unit_test(a_signal_interrupts_a_wait),
      cmocka_unit_test(a_signal_just_before_a_wait_is_kept_for_it),
      cmocka_unit_test(no_handler_runs_on_the_background_thread),
      cmocka_unit_test(the_timer_runs_once_when_due),
      cmocka_unit_test(calls_that_are_over_at_once_leave_time_for_timers),
      cmocka_unit_test(calls_that_are_over_at_once_leave_time_to_set_timers),
      cmocka_unit_test(a_caller_that_spins_reads_busy_sockets),
      cmocka_unit_test(a_caller_that_spins_hears_from_other_sockets),
      cmocka_unit_test(sockets_that_are_always_busy_leave_time_for_timers_and_signals),
      cmocka_unit_test(shared_memory_that_is_always_full_leaves_time_for_timers_and_signals),
      cmocka_unit_test(descriptors_that_are_always_ready_leave_time_for_signals),
      cmocka_unit_test(a_descriptor_that_stays_ready_ends_spins),
      cmocka_unit_test(only_callers_that_may_spin_read_sockets),
      cmocka_unit_test(tasks_that_have_not_run_are_dropped_at_the_end),
      cmocka_unit_test(the_end_of_a_loop_sends_its_callers_home),
      cmocka_unit_test(a_loop_needs_no_thread_of_its_own),
      cmocka_unit_test(a_forked_child_closes_what_it_inherited),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
