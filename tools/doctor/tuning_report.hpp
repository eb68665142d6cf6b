#pragma once
// What was measured, of one run or of several, and its forms.

#include <string>

#include <nlohmann/json.hpp>

namespace mv::tools {

using Json = nlohmann::ordered_json;

/// Adds what another run has found: transports that are new, their trials, and the faster reduction.
void merge(Json& report, const Json& other);
/// The setting collective_costs, once all has been merged.
std::string costs_of(const Json& report);
/// A line for a shell.
std::string export_line(const Json& report);
/// Tables, for people.
std::string tuning_text(const Json& report);

}  // namespace mv::tools
