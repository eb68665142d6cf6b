#pragma once
// A socket that listens.

#include <functional>
#include <memory>

#include "io/fd.hpp"
#include "io/loop/handles.hpp"

namespace mv::io {

class Listener {
 public:
  /// `accepted` gets each new connection, on the loop.
  Listener(Loop& loop, Fd fd, std::function<void(Fd)> accepted);
  /// False if the kernel refuses to watch it.
  bool ok() const { return poll_ != nullptr; }
  /// Out of descriptors: it has stopped to accept, until resume().
  bool paused() const { return paused_; }
  void resume();

 private:
  void on_ready();
  Fd fd_;
  std::function<void(Fd)> accepted_;
  bool paused_ = false;
  std::unique_ptr<Poll> poll_;  // ends before fd_
};

}  // namespace mv::io
