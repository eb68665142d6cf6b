#pragma once
// All that mv_doctor_text() tells, and its two forms. docs/operations.md has the JSON's fields: they are only ever added to.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/node/node.hpp"
#include "doctor/finding.hpp"
#include "settings.hpp"

namespace mv::capi {

struct DoctorReport {
  bool running = false;  ///< a node was asked; else what one would be
  std::string address;   ///< of a running node, as others are told
  runtime::Settings settings;
  SettingsReport sources;
  std::vector<doctor::Finding> findings;
  std::vector<api::PeerReport> peers;

  /// Whether there is nothing that somebody has to do.
  bool is_well() const;
  std::string as_json() const;
  std::string as_text() const;
};

/// Where the settings come from, what was seen and not used, and why no node would start, if so. An empty `place` is described.
doctor::Findings judge_settings(const SettingsReport& sources, const runtime::Settings& settings,
                                const base::Status& verdict, const std::string& place = "");

/// What mv_doctor_text() tells with MV_TUNE.
std::string tuning_as_json(const api::Tuning& tuning);

}  // namespace mv::capi
