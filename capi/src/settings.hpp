#pragma once
// The settings of a node. One table lists them all, and reads them from every source: the struct, text, a command line,
// the environment.

#include <polyverso/polyverso.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/setting_text.hpp"
#include "runtime/settings.hpp"

namespace mv::capi {

/// One setting's effective value, and its source.
struct SettingUse {
  enum class Source { kDefault, kLauncher, kEnvironment, kExplicit };
  std::string key, value;  ///< the value as text; never the secret itself
  Source source = Source::kDefault;
  std::string from;                 ///< "POLYVERSO_NODES=4 in the environment"; empty for a default
  std::vector<std::string> unused;  ///< messages about overridden sources, with the reason
};

/// The sources of a node's settings, collected while they are resolved.
struct SettingsReport {
  std::vector<SettingUse> settings;  ///< all of them, in their order; empty if the sources can't even be read
  std::string launcher;              ///< whose variables assign this process its place; empty: none
  std::vector<std::string> seen;     ///< all launchers whose variables are set
  std::vector<std::string> remarks, warnings;
};

/// The settings of one mv_init() or mv_node_open(): collected from the explicit sources, then completed.
class InitRequest {
 public:
  /// `function` begins every message.
  explicit InitRequest(const char* function);

  /// The struct and the text that it may contain. Null sets nothing.
  base::Status add_options(const mv_init_options* options);
  base::Status add_text(std::string_view text, std::string_view source);
  /// Returns which arguments were settings.
  base::Result<std::vector<int>> add_arguments(std::span<const char* const> arguments);

  /// Explicit values, else the environment's, else a launcher's, else defaults, checked as a whole. Sets the log level
  /// and logs the remarks of the report.
  base::Result<runtime::Settings> resolve(SettingsReport& report) const;
  /// resolve() without side effects. Report and settings contain the known values even if an error is returned.
  base::Status examine(SettingsReport& report, runtime::Settings& settings) const;
  /// The settings of an observer of a cluster that this process does not join: only master, secret and init_timeout are
  /// used.
  base::Result<runtime::Settings> whom_to_ask(base::Nanos patience) const;
  /// For a further mv_init(): MV_EDISAGREE if an explicit value differs from the running node's.
  base::Status agree_with(const runtime::Settings& running) const;

 private:
  base::Status weigh(const base::SaidSettings& environment, SettingsReport& report, runtime::Settings& settings) const;
  base::Status told(const base::Status& status) const;  // puts the function's name before the message

  const char* function_;
  base::SaidSettings explicit_;
};

/// All settings.
base::KnownSettings known_settings();

/// Sets the log level explicitly; POLYVERSO_LOG_LEVEL counts only if it was not set explicitly.
void choose_log_level(int32_t level) noexcept;
/// That of the environment, for processes without mv_init().
void take_log_level();

/// Whether the settings are consistent: those of a cluster, and exposure to other machines.
base::Status check_cluster(const runtime::Settings& settings);
/// tls=mutual needs three files; other modes none.
base::Status check_tls(const runtime::Settings& settings);

}  // namespace mv::capi
