#pragma once
// One process of a run, from its start to the end of its output.

#include <uv.h>

#include <array>
#include <functional>
#include <optional>
#include <string>

#include "run/output.hpp"
#include "run/plan.hpp"

namespace mv::tools {

/// How a process ended.
struct Ending {
  int status = 0;  ///< of exit()
  int signal = 0;  ///< or the signal that killed it
  bool failed() const { return status != 0 || signal != 0; }
  /// As a shell gives it.
  int exit_status() const { return signal != 0 ? 128 + signal : status; }
};

/// "was killed by SIGKILL", "exited with 3"
std::string describe(const Ending& ending);

class Child {
 public:
  /// What is on the descriptors 0 and 3 of the process; -1: nothing.
  struct Descriptors {
    int input = -1, master_socket = -1;
  };

  struct Events {
    std::function<void(Child&)> on_exited;  ///< it has ended; its output may not have
    std::function<void(Child&)> on_closed;  ///< its output has ended, too, and nothing of its process group is left
  };

  Child(uv_loop_t* loop, Process process, int color, Output& output, Events events);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// 0, or an error of libuv's. on_exited and on_closed follow only if it is 0. `self` is this program's path.
  int start(const std::string& self, const Descriptors& descriptors);
  /// To its process group.
  void signal(int number);

  /// From here on, tracebacks of an interrupt are not shown.
  void hide_interrupt_traces();
  bool had_interrupt_trace() const { return streams_[1].source.traces.found(); }

  /// Whether it has reported on standard error that another process is gone.
  bool names_lost_peer() const { return streams_[1].source.names_lost_peer; }

  /// Whether the cluster has had it: from the start, or, if it was added, since set_joined().
  bool has_joined() const { return joined_ || !process_.added; }
  void set_joined() { joined_ = true; }

  const Process& process() const { return process_; }
  pid_t pid() const { return handle_.pid; }
  bool running() const { return started_ && !ending_.has_value(); }
  const std::optional<Ending>& ending() const { return ending_; }
  /// "worker 2 (pid 123, rank 2)"
  std::string who() const;

 private:
  struct Stream {
    Child* child;
    uv_pipe_t pipe;
    Source source;
    bool open = false;
  };

  int open_streams(std::array<int, 2>& write_ends);
  int spawn(const std::string& self, const Descriptors& descriptors, const std::array<int, 2>& outputs);
  void start_reading(Stream& stream);
  void read(Stream& stream, ssize_t bytes, const char* data);
  void close_stream(Stream& stream);
  void on_exit(int64_t status, int signal);
  void finish();

  uv_loop_t* loop_;
  Process process_;
  Output& output_;
  Events events_;
  uv_process_t handle_{};
  uv_timer_t drain_{};  ///< after its end: how long its output may still be held open by others
  std::array<Stream, 2> streams_;
  std::array<char, 64 << 10> buffer_;
  std::optional<Ending> ending_;
  bool started_ = false, finished_ = false, joined_ = false;
};

}  // namespace mv::tools
