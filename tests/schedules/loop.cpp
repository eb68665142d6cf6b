// Callers of one loop. Other threads, tasks, descriptors and timers complete their calls. Some callers are interrupted, some wait until
// their deadline without a completion, and the loop may be stopped at any time.

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "scenarios.hpp"
#include "scheduler.hpp"
#include "transport/loop/handles.hpp"
#include "transport/loop/loop.hpp"

namespace mv::schedules {

namespace {

using namespace std::chrono_literals;
using transport::Driven;

/// A thread off the loop that executes tasks in order.
class Helper {
 public:
  Helper() : thread_([this] { serve(); }) {}
  ~Helper() {
    give(nullptr);
    thread_.join();
  }
  void give(std::function<void()> work) {
    std::lock_guard lock(mutex_);
    works_.push_back(std::move(work));
    changed_.notify_one();
  }

 private:
  void serve() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !works_.empty(); });
      const auto work = std::move(works_.front());
      works_.pop_front();
      lock.unlock();
      if (work == nullptr) return;
      work();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> works_;
  std::thread thread_;
};

/// Each request comes back as an event on the loop.
struct Echo {
  explicit Echo(transport::Loop& loop) : fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    poll = transport::Poll::make(loop, fd, [this](int) {
      eventfd_t count;
      if (eventfd_read(fd, &count) == 0) answered += count;
    });
    poll->watch(UV_READABLE);
  }
  ~Echo() {
    poll.reset();
    close(fd);
  }
  const int fd;
  std::atomic<uint64_t> answered{0};
  std::unique_ptr<transport::Poll> poll;
};

struct Flag {
  std::atomic<bool> is_set{false};
};

class Callers {
 public:
  void work() {
    if (one_in(2)) loop_.set_spin(10us);
    EXPECT(loop_.start().ok());
    stops_early_ = one_in(4);
    loop_.drive_until([&] { return echo_ != nullptr; }, base::kNever, [&] { echo_ = std::make_unique<Echo>(loop_); });
    begin_here();
    {
      std::vector<Helper> helpers(1 + random_below(2));
      std::vector<std::thread> callers;
      for (uint64_t caller = 1 + random_below(3); caller > 0; --caller)
        callers.emplace_back([&, caller] { call(helpers[caller % helpers.size()], caller == 1); });
      if (stops_early_) {
        for (uint64_t steps = random_below(100); steps > 0; --steps) std::this_thread::yield();
        loop_.stop();
      }
      for (std::thread& each : callers) each.join();
    }
    loop_.stop();
    echo_.reset();
  }

 private:
  void call(Helper& helper, bool has_timer) {
    for (uint64_t round = 1 + random_below(4); round > 0; --round) {
      const auto flag = std::make_shared<Flag>();
      const auto is_set = [flag] { return flag->is_set.load(std::memory_order_acquire); };
      const auto set = [flag] { flag->is_set.store(true, std::memory_order_release); };
      switch (random_below(has_timer ? 7 : 6)) {
        case 0:
          helper.give([this, set] {
            set();
            loop_.wake_waiters();
          });
          expect_done(is_set);
          break;
        case 1:
          helper.give([this, set] { loop_.post(set); });
          expect_done(is_set);
          break;
        case 2:
          expect_done(is_set, set);
          break;
        case 3: {
          const uint64_t before = echo_->answered;
          expect_done([&] { return echo_->answered > before; }, [this] { eventfd_write(echo_->fd, 1); });
          break;
        }
        case 4: {
          const Driven how = loop_.drive_until(is_set, loop_.now() + 50us);
          EXPECT(how == Driven::kTimeout || (how == Driven::kStopped && stops_early_));
          break;
        }
        case 5: {
          helper.give([this, set, me = pthread_self()] {
            pthread_kill(me, SIGUSR1);
            set();
            loop_.wake_waiters();
          });
          Driven how;
          while ((how = loop_.drive_until(is_set, base::kNever)) == Driven::kInterrupted) {
          }
          EXPECT(how == Driven::kDone || (how == Driven::kStopped && stops_early_));
          break;
        }
        default:
          expect_done(is_set, [this, set] { loop_.set_timer(loop_.now() + 1ms, set); });
      }
    }
  }

  void expect_done(const std::function<bool()>& done, transport::Task first = {}) {
    const Driven how = loop_.drive_until(done, base::kNever, std::move(first));
    EXPECT(how == Driven::kDone || (how == Driven::kStopped && stops_early_));
    EXPECT(how != Driven::kDone || done());
  }

  transport::Loop loop_;
  std::unique_ptr<Echo> echo_;
  bool stops_early_ = false;
};

}  // namespace

void loop_scenario() {
  Callers callers;
  callers.work();
}

}  // namespace mv::schedules
