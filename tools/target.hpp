#pragma once
// Which of the running clusters a command is about.

#include <polyverso/polyverso.h>

#include <cstdint>
#include <string>
#include <vector>

#include "run/registry.hpp"

namespace mv::tools {

struct ClusterChoice {
  std::string master, secret_file;  ///< empty: from the environment, or of the runs on this machine
  int64_t run = 0;                  ///< a launcher's process id; 0: whichever there are
};

/// A cluster to ask: the settings that name it, and a heading where there are several.
struct Target {
  std::string settings, heading;
  bool is_run = false;  ///< of this machine: the settings name its rank 0
};

/// The command for workers that join a run.
inline constexpr const char* kJoinCommand = "run --join";

/// A value for a settings text, whatever is in it.
std::string in_quotes(const std::string& value);

/// The settings by which to ask a run's master.
std::string settings_of(const RunEntry& run);

/// The runs of this user on this machine; only the one of the launcher `pid` unless that is 0. Throws UsageError if there is none, or, with `one`,
/// more than one. `command` begins messages.
std::vector<RunEntry> chosen_runs(const std::string& command, pid_t pid, bool one);

/// `command` begins messages. `one`: there must be exactly one. Throws UsageError.
std::vector<Target> targets_of(const std::string& command, const ClusterChoice& choice, bool one);

/// What follows the message of a question without an answer: who it is that is silent, and whom to ask instead. May be empty.
std::string what_to_do(mv_status status, const Target& target);

}  // namespace mv::tools
