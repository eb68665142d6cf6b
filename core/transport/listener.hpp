#pragma once
// A listening socket on the loop. It stops accepting for a moment when the process runs out of descriptors.

#include <functional>
#include <memory>

#include "transport/fd.hpp"
#include "transport/loop/handles.hpp"

namespace mv::transport {

class Listener {
 public:
  /// `accepted` receives each new connection, on the loop.
  Listener(Loop& loop, Fd fd, std::function<void(Fd)> accepted);
  /// False if the kernel refuses to watch it.
  bool ok() const { return poll_ != nullptr; }

 private:
  void on_ready();
  void resume();
  Fd fd_;
  std::function<void(Fd)> accepted_;
  bool has_warned_ = false;  // since the last accepted connection
  Timer again_;  // resumes accepting after a shortage of descriptors
  std::unique_ptr<Poll> poll_;  // destroyed before fd_
};

}  // namespace mv::transport
