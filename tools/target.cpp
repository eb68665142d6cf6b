#include "target.hpp"

#include <algorithm>
#include <cstdlib>

#include <fmt/core.h>

#include "run/options.hpp"
#include "secret.hpp"

namespace mv::tools {

std::string in_quotes(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text + "\"";
}

namespace {

std::string heading_of(const RunEntry& run) { return fmt::format("polyverso run {} at {}: {}", run.pid, run.address, run.command); }

}  // namespace

std::string settings_of(const RunEntry& run) {
  std::string settings = fmt::format("master={} secret={}", in_quotes(run.address), in_quotes(run.secret));
  if (run.tls.empty()) return settings;  // then the environment counts
  for (const char* const key : kTlsSettings) {
    const auto said = run.tls.find(key);
    const std::string otherwise = key == std::string_view("tls") ? "auto" : "";
    settings += fmt::format(" {}={}", key, in_quotes(said != run.tls.end() ? said->second : otherwise));
  }
  return settings;
}

std::vector<RunEntry> chosen_runs(const std::string& command, pid_t pid, bool one) {
  std::vector<RunEntry> runs = running();
  if (pid != 0) std::erase_if(runs, [&](const RunEntry& run) { return run.pid != pid; });
  if (runs.empty() && pid != 0) throw UsageError{fmt::format("{}: none of your runs (`polyverso run`) on this machine has the process id {}", command, pid)};
  if (runs.empty())
    throw UsageError{command + (command == kJoinCommand ? ": you have no run (`polyverso run`) on this machine that workers could join; start them where the run is, or without `polyverso run`, with POLYVERSO_MASTER"
                                                 : ": you have no run (`polyverso run`) on this machine; name a cluster with --master HOST:PORT, POLYVERSO_MASTER or POLYVERSO_KEEPER")};
  if (runs.size() > 1 && one) {
    std::string names;
    for (const RunEntry& run : runs) names += "\n  " + heading_of(run);
    throw UsageError{fmt::format("{0} needs one cluster; choose one with `polyverso {0} PID`:{1}", command, names)};
  }
  return runs;
}

namespace {

std::vector<Target> targets_among_runs(const std::string& command, const ClusterChoice& choice, bool one) {
  const std::vector<RunEntry> runs = chosen_runs(command, choice.run, one);
  std::vector<Target> targets;
  for (const RunEntry& run : runs)
    targets.push_back({settings_of(run), runs.size() > 1 ? heading_of(run) : "", true});
  return targets;
}

}  // namespace

std::vector<Target> targets_of(const std::string& command, const ClusterChoice& choice, bool one) {
  const char* master = std::getenv("POLYVERSO_MASTER");
  const char* keeper = std::getenv("POLYVERSO_KEEPER");
  const bool named = !choice.master.empty() || (master != nullptr && *master != '\0') || (keeper != nullptr && *keeper != '\0');
  if (choice.run != 0 || !named) return targets_among_runs(command, choice, one);
  std::string settings, secret;
  if (!choice.master.empty()) settings = "master=" + in_quotes(choice.master);
  if (!choice.secret_file.empty() && !read_secret(choice.secret_file, secret))
    throw UsageError{fmt::format("{}: --secret-file {}: the file is empty or can't be read", command, choice.secret_file)};
  if (!secret.empty()) settings += " secret=" + in_quotes(secret);
  return {{settings, "", false}};
}

std::string what_to_do(mv_status status, const Target& target) {
  if ((status != MV_ETIMEOUT && status != MV_EUNREACHABLE) || target.settings.empty()) return "";
  const char* const who = target.is_run ? "rank 0 of this run (its master)" : "the process there (the master, if it is rank 0)";
  return fmt::format(
      ": {} has ended or is stopped, or its machine is overloaded. Ask another member with --master ADDRESS: the members' addresses are in "
      "`polyverso status --json` as long as the master answers",
      who);
}

}  // namespace mv::tools
