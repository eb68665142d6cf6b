#include "status.hpp"

#include <polyverso/polyverso.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "library_text.hpp"

namespace mv::tools {
namespace {

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
  const std::string command = options.json ? "status --json" : "status";
  if (!options.watch) return show(targets_of(command, options.cluster, options.json), options.json) ? 0 : 1;
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  for (bool first = true;; first = false) {
    const std::vector<Target> targets = targets_of(command, options.cluster, options.json);
    if (terminal && !options.json) fmt::print("\033[H\033[2J");
    if (!terminal && !options.json && !first) fmt::print("\n");
    if (!show(targets, options.json)) return 1;
    std::this_thread::sleep_for(std::chrono::duration<double>(*options.watch));
  }
}

}  // namespace mv::tools
