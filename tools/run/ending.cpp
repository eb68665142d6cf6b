// Launcher: what follows when a process of the run ends, or a signal comes, until the last one has ended.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "run/launcher.hpp"

namespace mv::tools {
namespace {

/// From SIGTERM to SIGKILL.
constexpr uint64_t kGraceMs = 5000;
/// Servers end by themselves once the workers have ended; they get this long.
constexpr uint64_t kServerGraceMs = 10000;
/// The same after an interrupt. A server may still wait for the replacement of a worker that failed, or may not have noticed that all have ended;
/// no worker is left that needs it.
constexpr uint64_t kInterruptedServerMs = 500;
/// One death makes others fail within milliseconds, and the kernel does not report their order. With --keep-going, a process that was
/// killed by a signal during this time counts as the cause, before those that only gave up; without it, during the whole time of the
/// reports.
constexpr uint64_t kSettleMs = 20;
/// After the first failure, the remaining processes get this long to report what they miss, and to end.
constexpr uint64_t kReportMs = 2000;

/// "0-2, 5"
std::string ranges(const std::vector<int>& ids) {
  std::string text;
  for (size_t i = 0; i < ids.size();) {
    size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ids[i]);
    if (last > i) text += fmt::format("-{}", ids[last]);
    i = last + 1;
  }
  return text;
}

/// "stopped workers 0-2, server 0"; empty if there are none.
std::string list_of(const char* verb, const std::array<std::vector<int>, 2>& ids) {
  std::string text;
  for (size_t kind = 0; kind < ids.size(); ++kind) {
    if (ids[kind].empty()) continue;
    text += fmt::format("{} {}{} {}", text.empty() ? verb : ",", kind == 0 ? "worker" : "server", ids[kind].size() > 1 ? "s" : "", ranges(ids[kind]));
  }
  return text;
}

}  // namespace

void Launcher::on_exited(Child& child) {
  const bool failed = child.ending()->failed();
  exits_.report(child);
  if (was_told(child)) tell(child);
  any_failed_ = any_failed_ || (failed && !child.process().added);
  if (phase_ > Phase::kInterrupted) return;  // it did as it was told
  if (child.process().server) start_missing_servers();  // its rank may be the one for a new server
  if (failed && child.process().added && phase_ == Phase::kRunning) {
    if (!was_told(child)) tell(child);
    return;
  }
  if (failed) failed_.add(child);
  if (phase_ == Phase::kInterrupted) return limit_interrupted();
  if (settled_) return follow_failure();
  if (failed) {
    if (failed_.size() > 1) return;
    uv_timer_start(
        &settle_, [](uv_timer_t* timer) { static_cast<Launcher*>(timer->data)->settle(); }, kSettleMs, 0);
  } else if (failed_.empty() && !workers_running()) {
    arm_timer(kServerGraceMs);
  }
}

void Launcher::on_closed(Child& child) {
  tell_guard('-', child.pid());
  --open_;
}

/// The process that failed first is known now.
void Launcher::settle() {
  settled_ = true;
  if (options_.keep_going) failed_.settle();
  if (phase_ != Phase::kRunning) return;
  if (!options_.keep_going) {
    uv_timer_start(
        &settle_, [](uv_timer_t* timer) { static_cast<Launcher*>(timer->data)->end_if_running(); }, kReportMs, 0);
  }
  follow_failure();
}

void Launcher::end_if_running() {
  if (phase_ == Phase::kRunning) end_rest();
}

/// Without workers servers have nothing to report, and end by themselves only where no failed worker keeps them.
void Launcher::follow_failure() {
  if (phase_ != Phase::kRunning || workers_running()) return;
  options_.keep_going ? arm_timer(kServerGraceMs) : end_rest();
}

void Launcher::on_signal(int number) {
  if (number == SIGTSTP) return suspend();
  if (number == SIGCONT) return signal_all(SIGCONT);
  if (std::ranges::find(kPassedSignals, number) != kPassedSignals.end()) {
    for (const auto& child : children_) {
      if (child->running() && !child->process().server) child->signal(number);
    }
    return;
  }
  if (phase_ != Phase::kRunning) return kill_rest();  // the second Ctrl-C: the user has waited long enough
  interrupted_by_ = number;
  set_phase(Phase::kInterrupted);
  if (!options_.verbose)
    for (const auto& child : children_) child->hide_interrupt_traces();
  // Not to the servers: a worker may want to save what they hold. They end when the workers have.
  for (const auto& child : children_) {
    if (child->running() && !child->process().server) child->signal(number);
  }
  limit_interrupted();
}

/// Workers may take their time to save what they have, unless one has failed already.
void Launcher::limit_interrupted() {
  if (!workers_running())
    arm_timer(kInterruptedServerMs);
  else if (!failed_.empty() && !uv_is_active(reinterpret_cast<uv_handle_t*>(&timer_)))
    arm_timer(kGraceMs);
}

void Launcher::suspend() {
  signal_all(SIGSTOP);
  kill(getpid(), SIGSTOP);  // SIGCONT, which wakes us, is passed on
}

void Launcher::on_timer() {
  if (phase_ == Phase::kEnding) return kill_rest();
  if (phase_ == Phase::kRunning) {
    for (const auto& child : children_) {
      if (child->running())
        output_.say(fmt::format("{} did not end after the last worker: stopping it", child->who()));
    }
  }
  end_rest();
}

void Launcher::set_phase(Phase next) {
  assert(next > phase_);
  phase_ = next;
}

void Launcher::end_rest() {
  set_phase(Phase::kEnding);
  for (const auto& child : children_) {
    // At SIGTERM, a server would hand its tables over, which nobody needs any more.
    const bool drains = child->process().server && options_.server_command.empty();
    if (child->running()) child->signal(drains ? SIGINT : SIGTERM);
  }
  signal_all(SIGCONT);  // a stopped one hears SIGTERM only then
  arm_timer(kGraceMs);
}

void Launcher::kill_rest() {
  if (phase_ != Phase::kKilling) set_phase(Phase::kKilling);
  signal_all(SIGKILL);
}

void Launcher::signal_all(int number) {
  for (const auto& child : children_) {
    if (child->running()) child->signal(number);
  }
}

void Launcher::arm_timer(uint64_t milliseconds) {
  uv_timer_start(
      &timer_, [](uv_timer_t* timer) { static_cast<Launcher*>(timer->data)->on_timer(); }, milliseconds, 0);
}

bool Launcher::workers_running() const {
  return std::ranges::any_of(children_, [](const auto& child) { return child->running() && !child->process().server; });
}

bool Launcher::workers_failed() const {
  return std::ranges::any_of(children_, [](const auto& child) { return !child->process().server && child->ending()->failed(); });
}

void Launcher::tell(const Child& child) {
  output_.say(fmt::format("{} {}", child.who(), describe(*child.ending())));
  if (child.ending()->failed()) told_last_ = &child;
}

/// Whether its end was told when it happened.
bool Launcher::was_told(const Child& child) const { return options_.verbose || (options_.keep_going && child.ending()->failed()); }

/// Those that ended because of a signal, for the last line: ": stopped workers 0-2, server 0; killed worker 3".
std::string Launcher::stopped() const {
  std::array<std::vector<int>, 2> stopped, killed;  // workers, servers
  for (const auto& child : children_) {
    const Ending& ending = *child->ending();
    const bool by_signal = ending.signal != 0 || ending.status == 128 + interrupted_by_ || child->had_interrupt_trace();
    if (by_signal) (ending.signal == SIGKILL ? killed : stopped)[child->process().server ? 1 : 0].push_back(child->process().id);
  }
  const std::string first = list_of("stopped", stopped), second = list_of("killed", killed);
  return fmt::format("{}{}{}{}", first.empty() && second.empty() ? "" : ": ", first, first.empty() || second.empty() ? "" : "; ", second);
}

int Launcher::conclude() {
  if (start_error_ != 0) return 126;
  if (interrupted_by_ != 0 && any_failed_) {
    if (interrupted_by_ != SIGPIPE) output_.say(fmt::format("interrupted by SIG{}{}", sigabbrev_np(interrupted_by_), stopped()));
    ::signal(interrupted_by_, SIG_DFL);
    raise(interrupted_by_);
  }
  if (failed_.empty() || (options_.outlives_servers && !workers_failed())) return output_.has_lost() ? 1 : 0;
  std::vector<const Child*> causes = failed_.unexplained();
  const auto is_server = [](const Child* child) { return child->process().server; };
  if (options_.outlives_servers && !std::ranges::all_of(causes, is_server)) std::erase_if(causes, is_server);
  if (told_last_ != causes.front()) output_.say(describe(causes));
  return causes.front()->ending()->exit_status();
}

}  // namespace mv::tools
