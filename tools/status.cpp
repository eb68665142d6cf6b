#include "status.hpp"

#include <polyverso/polyverso.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "library_text.hpp"
#include "run/options.hpp"
#include "run/registry.hpp"
#include "secret.hpp"

namespace mv::tools {
namespace {

/// A cluster to ask: the settings that name it, and a heading where there are several.
struct Target {
  std::string settings, heading;
};

/// A value for a settings text, whatever is in it.
std::string quoted(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

std::string heading_of(const RunEntry& run) { return fmt::format("polyverso run {} at {}: {}", run.pid, run.address, run.command); }

std::vector<Target> targets_among_runs(const StatusOptions& options) {
  std::vector<RunEntry> runs = running();
  if (options.run != 0) std::erase_if(runs, [&](const RunEntry& run) { return run.pid != options.run; });
  if (runs.empty() && options.run != 0) throw UsageError{fmt::format("status: no `polyverso run` of yours has the process id {} on this machine", options.run)};
  if (runs.empty())
    throw UsageError{"status: no `polyverso run` of yours is under way on this machine; name a cluster with --master HOST:PORT, or POLYVERSO_MASTER"};
  if (runs.size() > 1 && options.json) {
    std::string names;
    for (const RunEntry& run : runs) names += "\n  " + heading_of(run);
    throw UsageError{"status: --json tells of one cluster; say which, `polyverso status --json PID`:" + names};
  }
  std::vector<Target> targets;
  for (const RunEntry& run : runs)
    targets.push_back({fmt::format("master={} secret={}", quoted(run.address), quoted(run.secret)), runs.size() > 1 ? heading_of(run) : ""});
  return targets;
}

std::vector<Target> targets_of(const StatusOptions& options) {
  const char* master = std::getenv("POLYVERSO_MASTER");
  const bool named = !options.master.empty() || (master != nullptr && *master != '\0');
  if (options.run != 0 || !named) return targets_among_runs(options);
  std::string settings, secret;
  if (!options.master.empty()) settings = "master=" + quoted(options.master);
  if (!options.secret_file.empty() && !read_secret(options.secret_file, secret))
    throw UsageError{fmt::format("status: --secret-file {}: there is no secret in it, or it can't be read", options.secret_file)};
  if (!secret.empty()) settings += " secret=" + quoted(secret);
  return {{settings, ""}};
}

bool show(const std::vector<Target>& targets, bool json) {
  bool answered = true;
  std::string shown;
  for (const Target& target : targets) {
    std::string text;
    const mv_status status = whole_text(
        [&](char* out, uint64_t capacity, uint64_t* length) { return mv_cluster_status_text(target.settings.c_str(), json ? MV_JSON : 0, out, capacity, length); }, text);
    if (status != MV_OK) text = fmt::format("no answer: {}\n", mv_last_error());
    if (status != MV_OK && targets.size() == 1) {
      fmt::print(stderr, "polyverso status: {}\n", mv_last_error());
      return false;
    }
    answered = answered && status == MV_OK;
    if (!target.heading.empty()) shown += fmt::format("{}{}\n", shown.empty() ? "" : "\n", target.heading);
    shown += text;
    if (json) shown += "\n";
  }
  fmt::print("{}", shown);
  std::fflush(stdout);
  return answered;
}

}  // namespace

int show_status(const StatusOptions& options) {
  if (!options.watch) return show(targets_of(options), options.json) ? 0 : 1;
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  for (bool first = true;; first = false) {
    const std::vector<Target> targets = targets_of(options);
    if (terminal && !options.json) fmt::print("\033[H\033[2J");
    if (!terminal && !options.json && !first) fmt::print("\n");
    if (!show(targets, options.json)) return 1;
    std::this_thread::sleep_for(std::chrono::duration<double>(*options.watch));
  }
}

}  // namespace mv::tools
