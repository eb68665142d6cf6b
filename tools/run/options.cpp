#include "run/options.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/similar.hpp"

namespace mv::tools {
namespace {

constexpr int kMostPort = 65535;

/// Fields of mv_init_options that make sense for all processes of a run alike.
constexpr auto kSettings = std::to_array<std::string_view>({
    "advertise", "bind", "checkpoint", "checkpoint_every_ms", "checkpoint_keep", "collective", "collective_costs", "faults", "gate_timeout_ms",
    "heartbeat_timeout_ms", "inflight_bytes", "init_timeout_ms", "keeper", "keeper_auth", "log_level", "replicas", "spin_us", "stuck_after_ms", "sync", "timeout_ms",
    "tls", "tls_ca", "tls_cert", "tls_key", "trace_events", "transport",
    "tuning"});
constexpr std::array kOwnSettings = {"exits", "launcher", "listen_fd", "master", "max_servers", "max_workers", "metrics", "nodes", "rank", "rendezvous", "resizes", "role", "secret"};

/// Why execvp() will not start this file; empty if it will.
std::string obstacle(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return "no such program";
  if (S_ISDIR(info.st_mode)) return "it is a directory";
  if (S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0) return "";
  return fmt::format("it is not executable: use chmod +x {}, or put its interpreter in front, as in python3 {}", path, path);
}

/// Why execvp() will not start the program. Asked beforehand, so that a mistyped name is one message instead of one a worker.
std::string obstacle_in_path(const std::string& program) {
  if (program.find('/') != std::string::npos) return obstacle(program);
  const char* path = std::getenv("PATH");
  std::string_view folders = path != nullptr ? path : "/bin:/usr/bin";
  std::string first = "no such program";
  while (true) {
    const size_t colon = folders.find(':');
    const std::string_view folder = folders.substr(0, colon);
    const std::string file = fmt::format("{}/{}", folder.empty() ? "." : folder, program);
    const std::string found = obstacle(file);
    if (found.empty()) return "";
    if (first == "no such program") first = found;
    if (colon == std::string_view::npos) return first;
    folders.remove_prefix(colon + 1);
  }
}

void check_program(const Command& command) {
  const std::string reason = obstacle_in_path(command[0]);
  if (!reason.empty()) throw UsageError{fmt::format("can't run \"{}\": {}", command[0], reason)};
}

}  // namespace

std::vector<Command> split_commands(const std::vector<std::string>& words) {
  std::vector<Command> commands(1);
  for (const std::string& word : words) {
    if (word == "---") {
      commands.emplace_back();
    } else {
      commands.back().push_back(word);
    }
  }
  if (std::ranges::any_of(commands, &Command::empty)) {
    throw UsageError{
        "no command given: put it after --, as in `polyverso run -n 4 -- python3 train.py`; "
        "separate the commands of different workers with ---"};
  }
  return commands;
}

std::map<std::string, std::string> parse_settings(const std::vector<std::string>& words, bool own) {
  std::map<std::string, std::string> settings;
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) throw UsageError{fmt::format("--set {}: expected key=value", word)};
    const std::string key = word.substr(0, equals);
    const bool is_own = std::ranges::find(kOwnSettings, key) != kOwnSettings.end();
    if (is_own && !own) throw UsageError{fmt::format("--set {}: `polyverso run` itself sets {} for each process", word, key)};
    if (!is_own && std::ranges::find(kSettings, key) == kSettings.end()) {
      throw UsageError{
          fmt::format("--set {}: there is no setting {}; the settings are {}{}", word, key, fmt::join(kSettings, ", "),
                      base::did_you_mean(key, kSettings))};
    }
    settings[key] = word.substr(equals + 1);
  }
  return settings;
}

void check(RunOptions& options) {
  const auto set = options.settings.find("replicas");
  options.outlives_servers = options.replicas > 0 || (set != options.settings.end() && set->second != "0");
  if (options.outlives_servers) options.keep_going = true;
  const int commands = static_cast<int>(options.commands.size());
  options.workers = options.workers_wished.value_or(commands);
  if (!options.server_command.empty() && options.servers == 0)
    throw UsageError{"--server-command is for servers, and there are none: give their number with --servers"};
  if (options.workers > kMostProcesses) throw UsageError{fmt::format("at most {} workers can be started on one machine", kMostProcesses)};
  const int at_start = options.servers > 0 ? options.servers : options.workers;
  if (options.max_servers != 0 && (options.max_servers < at_start || options.max_servers > kMostProcesses))
    throw UsageError{fmt::format("--max-servers {}: must be at least {}, the number of servers at the start, and at most {}", options.max_servers, at_start, kMostProcesses)};
  if (options.max_servers != 0 && options.workers + options.servers == 1)
    throw UsageError{"--max-servers: a single process is no cluster that could grow: give it a server with --servers 1"};
  if (options.max_workers != 0 && (options.max_workers < options.workers || options.max_workers > kMostProcesses))
    throw UsageError{fmt::format("--max-workers {}: must be at least {}, the number of workers at the start, and at most {}", options.max_workers, options.workers, kMostProcesses)};
  if (options.max_workers != 0 && options.workers + options.servers == 1)
    throw UsageError{"--max-workers: a single process is no cluster that could grow: give it a server with --servers 1"};
  if (options.joins && (options.servers != 0 || options.max_servers != 0 || options.max_workers != 0 || options.dashboard >= 0))
    throw UsageError{"--join adds workers only: without --servers, --max-servers, --max-workers and --dashboard"};
  if (options.metrics > 0 && options.metrics + options.workers + options.servers - 1 > kMostPort)
    throw UsageError{fmt::format("--metrics {}: {} processes need consecutive ports from there, but {} is the last port", options.metrics,
                                 options.workers + options.servers, kMostPort)};
  if (commands != 1 && commands != options.workers) {
    throw UsageError{
        fmt::format("-n {}, but {} commands: give one command for all workers, or one for each, separated by ---",
                    options.workers, commands)};
  }
  for (const Command& command : options.commands) check_program(command);
  if (!options.server_command.empty()) check_program(options.server_command);
}

}  // namespace mv::tools
