#pragma once
// RAII wrappers of libuv's handles. After the destructor the callback is never called again; the handle itself lives
// until libuv has closed it. All calls on the loop.

#include <uv.h>

#include <functional>
#include <memory>

#include "base/clock.hpp"
#include "transport/loop/loop.hpp"

namespace mv::transport {

/// Watches a descriptor and registers it with the loop's Descriptors. The caller owns the descriptor, and closes it
/// after the Poll.
class Poll {
 public:
  /// `events`: UV_READABLE, UV_WRITABLE or both. An error on the descriptor sets both, once.
  using Fn = std::function<void(int events)>;
  /// Null if the kernel refuses to watch `fd`.
  static std::unique_ptr<Poll> make(Loop& loop, int fd, Fn fn);
  ~Poll();
  Poll(const Poll&) = delete;
  Poll& operator=(const Poll&) = delete;

  /// Sets the events to watch; 0 stops watching.
  void watch(int events);

 private:
  Poll(Loop& loop, int fd, Fn fn) : loop_(loop), fd_(fd), fn_(std::move(fn)) {}
  Loop& loop_;
  const int fd_;
  Fn fn_;
  uv_poll_t* handle_ = nullptr;
  int watched_ = 0;
};

class Timer {
 public:
  Timer(Loop& loop, std::function<void()> fn);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  /// Calls `fn` after `delay`, and then every `repeat` unless that is 0. Rounds up to whole milliseconds.
  void start(base::Nanos delay, base::Nanos repeat = base::Nanos{0});
  void stop();
  bool active() const;

 private:
  Loop& loop_;
  std::function<void()> fn_;
  uv_timer_t* handle_;
};

}  // namespace mv::transport
