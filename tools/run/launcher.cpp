#include "run/launcher.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

/// A cluster that is to get more workers.
constexpr std::chrono::seconds kFormingAtMost{60};
constexpr std::chrono::milliseconds kLookAgain{100};

/// Those that end a run.
constexpr std::array kEndingSignals = {SIGINT, SIGTERM, SIGHUP};

std::string own_path() {
  std::array<char, 4096> path;
  size_t length = path.size();
  return uv_exepath(path.data(), &length) == 0 && access(path.data(), X_OK) == 0 ? path.data() : "/proc/self/exe";
}

bool is_ignored(int number) {
  struct sigaction action;
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
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

/// In a process group of its own, so that Ctrl-C does not take the page away before the workers have ended. run_armed() lets it end with this
/// process; it has no children that the guard would have to end. A run without a dashboard is as good otherwise.
void Launcher::start_dashboard() {
  if (!registration_->failure().empty()) return output_.say("no dashboard: " + registration_->failure());
  const std::string self = std::to_string(getpid());
  std::vector<std::string> words{"polyverso", kExecWord, self, self_, "dashboard", self, "--port", std::to_string(options_.dashboard)};
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
  options.exit_cb = [](uv_process_t* handle, int64_t, int) {
    uv_close(reinterpret_cast<uv_handle_t*>(handle), nullptr);
  };
  if (const int error = uv_spawn(&loop_, &dashboard_, &options); error != 0) output_.say(fmt::format("no dashboard: {}", uv_strerror(error)));
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
  const RunEntry run = chosen_runs(kJoinCommand, *options_.joins, true).front();
  const std::string settings = settings_of(run);
  const auto until = std::chrono::steady_clock::now() + kFormingAtMost;
  std::string status;
  const auto ask = [&](char* out, uint64_t capacity, uint64_t* length) { return mv_cluster_status_text(settings.c_str(), MV_JSON, out, capacity, length); };
  while (whole_text(ask, status) == MV_OK && nlohmann::json::parse(status).value("joining", false) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(kLookAgain);
  Meeting meeting{run.address, run.secret, "", "", run.nodes, run.replicas, run.tls};
  for (int color = 0; Process& process : plan_joining(options_, meeting)) {
    if (start_error_ = start(std::move(process), color++, {}); start_error_ == 0) continue;
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
                                 meeting.replicas, meeting.tls});
  if (!options_.verbose) return;
  if (registration_->failure().empty())
    output_.say(fmt::format("the master listens at {}; `polyverso status {}` shows the state of the cluster", meeting.master, getpid()));
  else
    output_.say(fmt::format("the master listens at {}; `polyverso status` will not find it: {}", meeting.master, registration_->failure()));
}

}  // namespace mv::tools
