#pragma once
// The report of mv_doctor_text(), in its two formats. docs/operations.md lists the JSON's fields: fields are only
// added.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/node/node.hpp"
#include "doctor/finding.hpp"
#include "settings.hpp"

namespace mv::capi {

struct DoctorReport {
  bool running = false;  ///< the report is about a running node; else about the node that would be started
  std::string address;   ///< of a running node, as advertised
  runtime::Settings settings;
  SettingsReport sources;
  std::vector<doctor::Finding> findings;
  std::vector<api::PeerReport> peers;

  /// Whether nothing needs attention.
  bool is_well() const;
  std::string as_json() const;
  std::string as_text() const;
};

/// The sources of the settings, settings that were seen but not used, and why no node would start, if so. An empty
/// `place` is described.
doctor::Findings judge_settings(const SettingsReport& sources, const runtime::Settings& settings,
                                const base::Status& verdict, const std::string& place = "");

/// The text of mv_doctor_text() with MV_TUNE.
std::string tuning_as_json(const api::Tuning& tuning);

}  // namespace mv::capi
