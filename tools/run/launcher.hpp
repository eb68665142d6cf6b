#pragma once
// Starts the processes of a run, and stays until the last of them has ended.

#include <uv.h>

#include <array>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "run/child.hpp"
#include "run/exits.hpp"
#include "run/failures.hpp"
#include "run/options.hpp"
#include "run/output.hpp"
#include "run/plan.hpp"
#include "run/registry.hpp"
#include "run/resizes.hpp"

namespace mv::tools {

/// Signals that are passed on to the workers, which may have a use for them.
inline constexpr std::array kPassedSignals = {SIGUSR1, SIGUSR2};

class Launcher {
 public:
  explicit Launcher(const RunOptions& options);
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// The exit status: 0 if all workers ended with 0, else that of the process whose failure caused the others. Does not return
  /// when a signal ended the run: the launcher then dies of it, so that a shell's loop around it ends, too.
  int run();

 private:
  enum class Phase {
    kRunning,
    kInterrupted,  ///< a signal was passed on to the workers: they may clean up
    kEnding,       ///< SIGTERM went to those that are left
    kKilling,      ///< SIGKILL did
  };

  void watch_signals();
  void start_guard();
  void start_dashboard();
  void end_dashboard();
  void start_processes();
  void start_joining();
  int start(Process process, int color, const Child::Descriptors& descriptors);
  void on_servers(int wanted, const std::vector<int>& staying, bool is_asked);
  void start_missing_servers();
  void register_run(const Meeting& meeting);
  void tell_guard(char sign, pid_t group);

  void on_exited(Child& child);
  void on_closed(Child& child);
  void on_signal(int number);
  void suspend();
  void on_timer();

  void set_phase(Phase next);
  void settle();
  void end_if_running();
  void follow_failure();
  void limit_interrupted();
  void end_rest();
  void kill_rest();
  void signal_all(int number);
  void arm_timer(uint64_t milliseconds);
  bool workers_running() const;
  bool workers_failed() const;
  int conclude();
  std::string stopped() const;
  void tell(const Child& child);
  bool was_told(const Child& child) const;

  RunOptions options_;
  Output output_;
  std::string self_;
  std::optional<Registration> registration_;
  Exits exits_;
  std::optional<Meeting> meeting_;
  std::optional<Resizes> resizes_;
  int wanted_servers_ = 0;     ///< by the last change of their number; 0: there was none
  int64_t missing_servers_ = 0;  ///< those of them that are to be started as soon as there is a vacant rank
  uv_loop_t loop_{};
  uv_timer_t timer_{};   ///< until the next, harsher step
  uv_timer_t settle_{};  ///< after the first failure: until it is known, then until the others are told to end
  std::vector<std::unique_ptr<uv_signal_t>> signals_;
  uv_process_t guard_{};
  int guard_fd_ = -1;
  const Child* told_last_ = nullptr;  ///< the last one that failed and was named
  uv_process_t dashboard_{};
  std::vector<std::unique_ptr<Child>> children_;
  Failures failed_;
  bool any_failed_ = false;  ///< those that were told to end included
  bool settled_ = false;     ///< the first failure is known, and who fails from now on does so because of it
  Phase phase_ = Phase::kRunning;
  int interrupted_by_ = 0;
  int start_error_ = 0;
  size_t open_ = 0;  ///< children that are not closed
};

}  // namespace mv::tools
