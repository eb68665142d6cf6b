#pragma once
// The settings of a node: one table names them all, and everything a caller can write them in is read by that table:
// the struct, text, a command line, the environment.

#include <polyverso/polyverso.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "base/result.hpp"
#include "runtime/settings.hpp"

namespace mv::capi {

/// One setting as it counts, and who said it.
struct SettingUse {
  enum class Source { kDefault, kLauncher, kEnvironment, kExplicit };
  std::string key, value;  ///< the value as text; never a secret itself
  Source source = Source::kDefault;
  std::string from;                 ///< "POLYVERSO_NODES=4 in the environment"; empty for a default
  std::vector<std::string> unused;  ///< sentences on what else was said, and why it does not count
};

/// Where the settings of a node come from, gathered on the way to them.
struct SettingsReport {
  std::vector<SettingUse> settings;  ///< all of them, in their order; empty where the sources can't even be read
  std::string launcher;              ///< whose variables give this process its place; empty: nobody's
  std::vector<std::string> seen;     ///< all launchers whose variables are there
  std::vector<std::string> remarks, warnings;
};

/// What one mv_init() or mv_node_open() says, gathered from its explicit sources, then completed.
class InitRequest {
 public:
  /// `function` begins every message.
  explicit InitRequest(const char* function);

  /// The struct and the text it may carry. Null says nothing.
  base::Status add_options(const mv_init_options* options);
  base::Status add_text(std::string_view text, std::string_view source);
  /// Returns which arguments were settings.
  base::Result<std::vector<int>> add_arguments(std::span<const char* const> arguments);

  /// Explicit values, else the environment's, else a launcher's, else defaults, checked as a whole. Sets the log level and logs
  /// what the report remarks.
  base::Result<runtime::Settings> resolve(SettingsReport& report) const;
  /// The same without a trace. Report and settings tell what is known even where an error is returned.
  base::Status examine(SettingsReport& report, runtime::Settings& settings) const;
  /// Whom to ask about a cluster that this process does not join: of all settings, master, secret and init_timeout count.
  base::Result<runtime::Settings> whom_to_ask(base::Nanos patience) const;
  /// For a further mv_init(): MV_EDISAGREE where an explicit value is not that of the running node.
  base::Status agree_with(const runtime::Settings& running) const;

 private:
  base::Status weigh(const base::SaidSettings& environment, SettingsReport& report, runtime::Settings& settings) const;
  base::Status told(const base::Status& status) const;  // with the function before it

  const char* function_;
  base::SaidSettings explicit_;
};

/// All settings there are.
base::KnownSettings known_settings();

/// Sets the log level by somebody's choice; POLYVERSO_LOG_LEVEL counts only where nobody chose.
void choose_log_level(int32_t level) noexcept;

/// Whether the settings make sense together: those of a cluster, and what is open to other machines.
base::Status check_cluster(const runtime::Settings& settings);

}  // namespace mv::capi
