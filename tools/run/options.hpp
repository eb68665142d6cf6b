#pragma once
// What `polyverso run` was asked to do.

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mv::tools {

/// Workers, and servers, of one run.
inline constexpr int kMostProcesses = 4096;

using Command = std::vector<std::string>;

struct RunOptions {
  std::optional<int> workers_wished;  ///< none: as many as there are commands
  int workers = 0;                    ///< check() fills it in
  int servers = 0;  ///< processes that only serve; 0: every worker is a server too
  int max_servers = 0;  ///< to which it can grow; 0: those at the start
  int max_workers = 0;  ///< as max_servers, of workers
  std::optional<int> joins;  ///< adds the workers to a run: that of the launcher with this process id; 0: the only one
  Command server_command;  ///< empty: `polyverso server`
  int metrics = -1;  ///< rank 0's port, the others' follow; 0: any free ones; -1: none
  int dashboard = -1;  ///< the port of the page for browsers; 0: any free one; -1: none
  bool sync = false;
  int replicas = 0;  ///< see mv_init_options
  bool color = true;
  bool verbose = false;
  bool keep_going = false;  ///< a process that fails ends nobody else
  bool outlives_servers = false;  ///< set by check(): other servers keep copies, so that the run can end well without one
  std::string tls;  ///< the setting; empty: not given
  std::map<std::string, std::string> settings;  ///< mv_init_options fields, by name
  std::vector<Command> commands;                ///< one for all workers, or one for each
};

/// An error in what the user typed: printed as a sentence, exit status 2.
struct UsageError {
  std::string text;
};

/// Cuts "A a --- B b" into commands. Throws UsageError if one is empty.
std::vector<Command> split_commands(const std::vector<std::string>& words);

/// Reads "key=value" words of --set. Throws UsageError for an unknown key, and unless `own` for one that the launcher itself decides.
std::map<std::string, std::string> parse_settings(const std::vector<std::string>& words, bool own = false);

/// Fills in the number of workers and checks that every worker has a command that exists. Throws UsageError.
void check(RunOptions& options);

}  // namespace mv::tools
