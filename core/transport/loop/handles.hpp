#pragma once
// libuv's handles with a C++ end of life: the handle itself lives on until libuv has closed it, its callback does not.
// Everything here on the loop.

#include <uv.h>

#include <functional>
#include <memory>

#include "base/clock.hpp"
#include "transport/loop/loop.hpp"

namespace mv::transport {

/// Watches a descriptor, which is registered with the loop's Descriptors but stays the caller's: close it after the Poll.
class Poll {
 public:
  /// `events`: UV_READABLE, UV_WRITABLE or both. After an error on the descriptor both are set, once.
  using Fn = std::function<void(int events)>;
  /// Null if the kernel refuses to watch `fd`.
  static std::unique_ptr<Poll> make(Loop& loop, int fd, Fn fn);
  ~Poll();
  Poll(const Poll&) = delete;
  Poll& operator=(const Poll&) = delete;

  /// 0 stops watching.
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

  /// Calls after `delay`, and then every `repeat` unless that is 0. Whole milliseconds.
  void start(base::Nanos delay, base::Nanos repeat = base::Nanos{0});
  void stop();
  bool active() const;

 private:
  Loop& loop_;
  std::function<void()> fn_;
  uv_timer_t* handle_;
};

}  // namespace mv::transport
