#include "run/launcher.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <polyverso/polyverso.h>

#include "library_text.hpp"
#include "run/guard.hpp"
#include "target.hpp"

namespace mv::tools {
namespace {

/// From SIGTERM to SIGKILL.
constexpr uint64_t kGraceMs = 5000;
/// Servers end by themselves once the workers have; they are given this long.
constexpr uint64_t kServerGraceMs = 10000;
/// One death makes others fail within milliseconds, and the kernel does not tell their order. With --keep-going, whoever was killed by
/// a signal during this time is to blame, before those that merely gave up; without it, during the whole time of the reports.
constexpr uint64_t kSettleMs = 20;
/// Those that are left are given this long after the first failure to say by themselves what they miss, and to end.
constexpr uint64_t kReportMs = 2000;
/// A cluster that is to get more workers.
constexpr std::chrono::seconds kFormingAtMost{60};
constexpr std::chrono::milliseconds kLookAgain{100};

/// Those that end a run, and those that workers may have a use for.
constexpr std::array kEndingSignals = {SIGINT, SIGTERM, SIGHUP};
constexpr std::array kPassedSignals = {SIGUSR1, SIGUSR2};

std::string own_path() {
  std::array<char, 4096> path;
  size_t length = path.size();
  return uv_exepath(path.data(), &length) == 0 && access(path.data(), X_OK) == 0 ? path.data() : "/proc/self/exe";
}

bool is_ignored(int number) {
  struct sigaction action;
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

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

Launcher::Launcher(const RunOptions& options) : options_(options), output_(options.color), self_(own_path()) {
  uv_loop_init(&loop_);
  uv_timer_init(&loop_, &timer_);
  uv_timer_init(&loop_, &settle_);
  timer_.data = settle_.data = this;
}

Launcher::~Launcher() {
  uv_walk(
      &loop_,
      [](uv_handle_t* handle, void*) {
        if (!uv_is_closing(handle)) uv_close(handle, nullptr);
      },
      nullptr);
  uv_run(&loop_, UV_RUN_DEFAULT);
  uv_loop_close(&loop_);
}

int Launcher::run() {
  signal(SIGPIPE, SIG_IGN);
  watch_signals();
  start_guard();
  options_.joins ? start_joining() : start_processes();
  if (options_.dashboard >= 0) start_dashboard();
  while (open_ > 0) {
    uv_run(&loop_, UV_RUN_ONCE);
    // Nobody reads our output: end as any program in a pipeline does.
    if (output_.broken() && phase_ == Phase::kRunning) {
      interrupted_by_ = SIGPIPE;
      end_rest();
    }
  }
  registration_.reset();
  if (resizes_) resizes_->close();
  end_dashboard();
  close(guard_fd_);
  while (uv_is_active(reinterpret_cast<uv_handle_t*>(&guard_))) uv_run(&loop_, UV_RUN_ONCE);
  return conclude();
}

void Launcher::watch_signals() {
  const auto watch = [this](int number) {
    if (is_ignored(number)) return;  // nohup
    auto handle = std::make_unique<uv_signal_t>();
    uv_signal_init(&loop_, handle.get());
    handle->data = this;
    uv_signal_start(
        handle.get(), [](uv_signal_t* from, int caught) { static_cast<Launcher*>(from->data)->on_signal(caught); },
        number);
    uv_unref(reinterpret_cast<uv_handle_t*>(handle.get()));
    signals_.push_back(std::move(handle));
  };
  for (const int number : kEndingSignals) watch(number);
  for (const int number : kPassedSignals) watch(number);
  for (const int number : {SIGTSTP, SIGCONT}) watch(number);
}

void Launcher::start_guard() {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  guard_fd_ = ends[1];
  std::array<uv_stdio_container_t, 1> entries{};
  entries[0].flags = UV_INHERIT_FD;
  entries[0].data.fd = ends[0];
  std::string name = "polyverso", word = kGuardWord;
  std::array<char*, 3> arguments{name.data(), word.data(), nullptr};
  uv_process_options_t options{};
  options.file = self_.c_str();
  options.args = arguments.data();
  options.stdio = entries.data();
  options.stdio_count = 1;
  options.flags = UV_PROCESS_DETACHED;  // out of the terminal's reach
  options.exit_cb = [](uv_process_t* handle, int64_t, int) {
    uv_close(reinterpret_cast<uv_handle_t*>(handle), nullptr);
  };
  const int error = uv_spawn(&loop_, &guard_, &options);
  close(ends[0]);
  if (error != 0) throw std::system_error(-error, std::generic_category(), "starting the guard");
}

/// In a session of its own, so that Ctrl-C does not take the page away before the workers have ended. A run without is as good otherwise.
void Launcher::start_dashboard() {
  if (!registration_->failure().empty()) return output_.say("no dashboard: " + registration_->failure());
  std::vector<std::string> words{"polyverso", "dashboard", std::to_string(getpid()), "--port", std::to_string(options_.dashboard)};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<uv_stdio_container_t, 3> entries{};
  for (size_t fd = 1; fd < entries.size(); ++fd) {
    entries[fd].flags = UV_INHERIT_FD;
    entries[fd].data.fd = STDERR_FILENO;  // standard output has the workers' only
  }
  uv_process_options_t options{};
  options.file = self_.c_str();
  options.args = arguments.data();
  options.stdio = entries.data();
  options.stdio_count = static_cast<int>(entries.size());
  options.flags = UV_PROCESS_DETACHED;
  options.exit_cb = [](uv_process_t* handle, int64_t, int) {
    static_cast<Launcher*>(handle->data)->tell_guard('-', handle->pid);
    uv_close(reinterpret_cast<uv_handle_t*>(handle), nullptr);
  };
  dashboard_.data = this;
  const int error = uv_spawn(&loop_, &dashboard_, &options);
  if (error != 0) return output_.say(fmt::format("no dashboard: {}", uv_strerror(error)));
  tell_guard('+', dashboard_.pid);
}

void Launcher::end_dashboard() {
  if (!uv_is_active(reinterpret_cast<uv_handle_t*>(&dashboard_))) return;
  uv_process_kill(&dashboard_, SIGKILL);  // it holds nothing that it had to save
  while (uv_is_active(reinterpret_cast<uv_handle_t*>(&dashboard_))) uv_run(&loop_, UV_RUN_ONCE);
}

void Launcher::tell_guard(char sign, pid_t group) {
  const std::string line = fmt::format("{}{}\n", sign, group);
  while (write(guard_fd_, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

/// Workers that join another run. They have no part in its end, and it has none in theirs. While that run's cluster is forming, they would take the
/// places of its first processes.
void Launcher::start_joining() {
  const RunEntry run = chosen_runs("run --join", *options_.joins, true).front();
  const std::string settings = fmt::format("master={} secret={}", in_quotes(run.address), in_quotes(run.secret));
  const auto until = std::chrono::steady_clock::now() + kFormingAtMost;
  std::string status;
  const auto ask = [&](char* out, uint64_t capacity, uint64_t* length) { return mv_cluster_status_text(settings.c_str(), MV_JSON, out, capacity, length); };
  while (whole_text(ask, status) == MV_OK && nlohmann::json::parse(status).value("joining", false) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(kLookAgain);
  Meeting meeting{run.address, run.secret, "", "", run.nodes, run.replicas};
  for (Process& process : plan_joining(options_, meeting)) {
    const int color = process.rank;
    if (start_error_ = start(std::move(process), color, {}); start_error_ == 0) continue;
    return end_rest();
  }
}

void Launcher::start_processes() {
  const MasterSocket master = open_master_socket();
  // A terminal can't be shared with process groups in its background: there, all workers read nothing.
  const int input = isatty(STDIN_FILENO) ? -1 : STDIN_FILENO;
  resizes_.emplace(&loop_, [this](int wanted, const std::vector<int>& staying, bool is_asked) { on_servers(wanted, staying, is_asked); });
  meeting_ = meeting_at(master.port, exits_.path(), resizes_->path(), options_);
  register_run(*meeting_);
  for (Process& process : plan(options_, *meeting_, self_)) {
    const int rank = process.rank;
    const int error = start(std::move(process), rank, {rank == 0 ? input : -1, rank == 0 ? master.fd : -1});
    if (error == 0) continue;
    start_error_ = error;
    end_rest();
    break;
  }
  close(master.fd);  // from here on, a master that is gone refuses connections instead of letting them wait
}

/// 0, or libuv's error, which it has told.
int Launcher::start(Process process, int color, const Child::Descriptors& descriptors) {
  Child::Events events{[this](Child& child) { on_exited(child); }, [this](Child& child) { on_closed(child); }};
  auto child = std::make_unique<Child>(&loop_, std::move(process), color, output_, std::move(events));
  const int error = child->start(self_, descriptors);
  children_.push_back(std::move(child));
  const Child& started = *children_.back();
  if (error != 0) {
    output_.say(fmt::format("can't start {}: {}", started.process().name, uv_strerror(error)));
    return error;
  }
  ++open_;
  tell_guard('+', started.pid());
  if (options_.verbose) output_.say(fmt::format("{}: {}", started.who(), fmt::join(started.process().command, " ")));
  return 0;
}

/// If the cluster has too many servers, it ends some itself. One that it had and that does not stay is on its way out, however long its process
/// takes to end; one that it has never had is still joining.
void Launcher::on_servers(int wanted, const std::vector<int>& staying, bool is_asked) {
  int64_t there = 0;
  for (const auto& child : children_) {
    if (!child->running() || !(child->process().server || options_.servers == 0)) continue;
    const bool stays = std::ranges::find(staying, child->process().rank) != staying.end();
    if (stays) child->set_joined();
    if (stays || !child->has_joined()) ++there;
  }
  if (std::exchange(wanted_servers_, wanted) == wanted && !is_asked) return;  // between requests, servers that die are not replaced
  missing_servers_ = std::max<int64_t>(0, wanted - there);
  start_missing_servers();
}

void Launcher::start_missing_servers() {
  const auto runs = [this](int rank) {
    return std::ranges::any_of(children_, [rank](const auto& child) { return child->running() && child->process().rank == rank; });
  };
  const int ranks = options_.workers + options_.max_servers - (options_.servers == 0 ? options_.workers : 0);
  for (int rank = options_.workers; rank < ranks && missing_servers_ > 0 && phase_ == Phase::kRunning && workers_running(); ++rank) {
    if (runs(rank)) continue;
    if (start(plan_added_server(options_, *meeting_, self_, rank), rank, {}) != 0) return;
    --missing_servers_;
  }
}

/// So that `polyverso status` finds it. A run without is as good otherwise.
void Launcher::register_run(const Meeting& meeting) {
  registration_.emplace(RunEntry{getpid(), meeting.master, meeting.secret, fmt::format("{}", fmt::join(options_.commands.front(), " ")), meeting.nodes,
                                 meeting.replicas});
  if (!options_.verbose) return;
  if (registration_->failure().empty())
    output_.say(fmt::format("the master listens at {}; `polyverso status {}` shows the state of the cluster", meeting.master, getpid()));
  else
    output_.say(fmt::format("the master listens at {}; `polyverso status` will not find it: {}", meeting.master, registration_->failure()));
}

void Launcher::on_exited(Child& child) {
  const bool failed = child.ending()->failed();
  exits_.report(child);
  if (was_told(child)) output_.say(fmt::format("{} {}", child.who(), describe(*child.ending())));
  any_failed_ = any_failed_ || (failed && !child.process().added);
  if (phase_ > Phase::kInterrupted) return;  // it did as it was told
  if (child.process().server) start_missing_servers();  // its rank may be the one for a new server
  if (failed && child.process().added && phase_ == Phase::kRunning) {
    if (!was_told(child)) output_.say(fmt::format("{} {}", child.who(), describe(*child.ending())));
    return;
  }
  if (failed) failed_.add(child);
  if (settled_) return follow_failure();
  if (failed) {
    if (failed_.size() > 1) return;
    if (phase_ == Phase::kInterrupted) return arm_timer(kGraceMs);
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
  if (!failed_.empty() || !workers_running()) arm_timer(kGraceMs);
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
  if (failed_.empty() || (options_.outlives_servers && !workers_failed())) return 0;
  const std::vector<const Child*> causes = failed_.unexplained();
  if (!was_told(*causes.front())) output_.say(describe(causes));
  return causes.front()->ending()->exit_status();
}

}  // namespace mv::tools
