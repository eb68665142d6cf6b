#pragma once
// SIGTERM and SIGINT of `polyverso server`: the first SIGTERM hands its tables over to other servers.

#include <atomic>
#include <chrono>
#include <thread>

#include <sys/types.h>

namespace mv::tools {

/// Takes both signals from now on, in a thread: while this exists, they are blocked in all threads. Also of a process with the number 1 of a
/// container, in which signals without a handler would do nothing.
///
///   SIGTERM while serving   mv_cluster_drain() with the grace period; then the server ends with status 0. If it can't be, a line says why,
///                           and the process ends as by SIGTERM
///   otherwise, and a second one, and SIGINT   the process ends at once, as by this signal
class ServerSignals {
 public:
  /// @param grace  0: SIGTERM ends the process at once
  explicit ServerSignals(std::chrono::milliseconds grace);
  ServerSignals(const ServerSignals&) = delete;
  ServerSignals& operator=(const ServerSignals&) = delete;
  ~ServerSignals();

  /// The process has joined its cluster.
  void serves() { serves_ = true; }

 private:
  void take();
  void drain();

  const std::chrono::milliseconds grace_;
  const int signals_, end_;
  std::atomic<bool> serves_{false};
  std::thread taker_, drainer_;
};

}  // namespace mv::tools
