#include "status.hpp"

#include <polyverso/polyverso.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "library_text.hpp"
#include "run/options.hpp"

namespace mv::tools {
namespace {

mv_status ask(const StatusOptions& options, const Target& target, std::string& text) {
  const uint32_t flags = options.json ? MV_JSON : 0;
  return whole_text(
      [&](char* out, uint64_t capacity, uint64_t* length) {
        if (options.log_of) return mv_cluster_log_text(target.settings.c_str(), *options.log_of, flags, out, capacity, length);
        if (!options.gossip.empty()) return mv_gossip_status_text(options.gossip.c_str(), flags, out, capacity, length);
        return mv_cluster_status_text(target.settings.c_str(), flags, out, capacity, length);
      },
      text);
}

/// `watched`: it is asked again soon, and so no answer is a part of the picture.
bool show(const std::vector<Target>& targets, const StatusOptions& options, bool watched) {
  bool answered = true;
  std::string shown;
  for (const Target& target : targets) {
    std::string text;
    const mv_status status = ask(options, target, text);
    const std::string wrong = status == MV_OK ? "" : mv_last_error() + what_to_do(status, target);
    if (status != MV_OK) text = fmt::format("no answer: {}\n", wrong);
    if (status != MV_OK && (options.json || (targets.size() == 1 && !watched))) {
      fmt::print(stderr, "polyverso status: {}\n", wrong);
      return false;
    }
    answered = answered && status == MV_OK;
    if (!target.heading.empty()) shown += fmt::format("{}{}\n", shown.empty() ? "" : "\n", target.heading);
    shown += text;
    if (options.json) shown += "\n";
  }
  fmt::print("{}", shown);
  std::fflush(stdout);
  return answered;
}

std::vector<Target> whom(const StatusOptions& options) {
  if (!options.gossip.empty()) return std::vector<Target>(1);
  const char* const command = options.log_of ? "status --log" : options.json ? "status --json" : "status";
  return targets_of(command, options.cluster, options.json || options.log_of.has_value());
}

}  // namespace

int show_status(const StatusOptions& options) {
  if (!options.watch) return show(whom(options), options, false) ? 0 : 1;
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  for (bool first = true;; first = false) {
    std::vector<Target> targets;
    std::string refused;
    try {
      targets = whom(options);
    } catch (const UsageError& error) {  // its runs have ended: others may begin
      if (first) throw;
      refused = error.text;
    }
    if (terminal && !options.json) fmt::print("\033[H\033[2J");
    if (!terminal && !options.json && !first) fmt::print("\n");
    if (refused.empty()) show(targets, options, true);
    if (!refused.empty()) fmt::print(options.json ? stderr : stdout, "{}\n", refused);
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::duration<double>(*options.watch));
  }
}

}  // namespace mv::tools
