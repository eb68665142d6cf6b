#pragma once
// A socket that listens. Out of descriptors it stops to accept for a moment.

#include <functional>
#include <memory>

#include "transport/fd.hpp"
#include "transport/loop/handles.hpp"

namespace mv::transport {

class Listener {
 public:
  /// `accepted` gets each new connection, on the loop.
  Listener(Loop& loop, Fd fd, std::function<void(Fd)> accepted);
  /// False if the kernel refuses to watch it.
  bool ok() const { return poll_ != nullptr; }

 private:
  void on_ready();
  void resume();
  Fd fd_;
  std::function<void(Fd)> accepted_;
  bool has_warned_ = false;  // since a connection was accepted
  Timer again_;  // out of descriptors: when to accept again
  std::unique_ptr<Poll> poll_;  // ends before fd_
};

}  // namespace mv::transport
