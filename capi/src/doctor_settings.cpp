// Turns the sources of the settings into findings.

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>
#include <utility>

#include "doctor_report.hpp"

namespace mv::capi {
namespace {

constexpr std::string_view kPrefix = "POLYVERSO_";

/// The edit distance: letters to change, add or remove to turn one into the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

std::string variable_of(const base::SettingInfo& setting) {
  std::string name(kPrefix);
  for (const char* c = setting.key; *c != '\0'; ++c)
    name += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
  return name;
}

/// The variable of a setting that was probably meant; empty for a valid name, and if no name is similar.
std::string meant_by(std::string_view name) {
  std::string nearest;
  size_t least = 3;
  for (const base::SettingInfo* setting : known_settings()) {
    const std::string variable = variable_of(*setting);
    const size_t far = distance(name, variable);
    if (far == 0) return {};
    const size_t letters = variable.size() - kPrefix.size();
    if (far < least && far * 3 < letters) {
      least = far;
      nearest = variable;
    }
  }
  return nearest;
}

void look_for_typos(doctor::Findings& findings) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string_view name = variable.substr(0, variable.find('='));
    if (!name.starts_with(kPrefix)) continue;
    if (const std::string meant = meant_by(name); !meant.empty())
      findings.problem("environment", fmt::format("{} is not a setting: it is ignored", name),
                       fmt::format("did you mean {}?", meant));
  }
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

void judge_launcher(const SettingsReport& sources, doctor::Findings& findings) {
  if (!sources.launcher.empty()) {
    std::string variables;
    for (const SettingUse& use : sources.settings)
      if (use.source == SettingUse::Source::kLauncher)
        variables += fmt::format("{}{} ({})", variables.empty() ? "" : "; ", use.key, use.from);
    findings.ok("launcher",
                fmt::format("{}: {}", sources.launcher,
                            variables.empty() ? "its variables are not used: all settings come from elsewhere" : variables));
  } else if (sources.seen.empty()) {
    findings.ok("launcher", "none (or not looked for)");
  }
  std::vector<std::string> others;
  std::ranges::copy_if(sources.seen, std::back_inserter(others),
                       [&](const std::string& name) { return name != sources.launcher; });
  if (!others.empty())
    findings.note("launcher", fmt::format("variables of {} are also set, but not used", join(others)),
                  "nothing to do if this is intended; else choose another with POLYVERSO_LAUNCHER");
}

std::string describe_place(const runtime::Settings& settings) {
  if (settings.nodes == 1) return "a cluster of one process";
  const std::string rank = settings.rank < 0 ? "a rank in order of arrival" : fmt::format("rank {}", settings.rank);
  const std::string where = !settings.master.empty()
                                ? "rank 0 at " + settings.master
                                : "rank 0's address from the job's name, " + settings.rendezvous;
  return fmt::format("{} of {} processes, {}", rank, settings.nodes, where);
}

}  // namespace

doctor::Findings judge_settings(const SettingsReport& sources, const runtime::Settings& settings,
                                const base::Status& verdict, const std::string& place) {
  doctor::Findings findings("settings");
  if (verdict.ok())
    findings.ok("place", place.empty() ? describe_place(settings) : place);
  else
    findings.problem("place", fmt::format("a node can't start: {}", verdict.text()),
                     "correct this setting; mv_init() would fail with the same error");
  judge_launcher(sources, findings);
  for (const std::string& warning : sources.warnings)
    findings.note("launcher", warning,
                  "start the program with the launcher if it is one of several processes, else set POLYVERSO_LAUNCHER=none");
  for (const std::string& remark : sources.remarks) findings.note("launcher", remark, "nothing to do if this is intended");
  for (const SettingUse& use : sources.settings)
    for (const std::string& loser : use.unused)
      findings.note(use.key, loser, "nothing to do if this is intended; else unset the wrong one");
  look_for_typos(findings);
  return findings;
}

}  // namespace mv::capi
