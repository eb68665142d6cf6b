#include "doctor/tuning_report.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace mv::tools {
namespace {

/// A rate, of a time for each byte.
std::string gigabytes(double ns) { return ns > 0 ? fmt::format("{:.2f}", 1 / ns) : "-"; }

std::string transport_lines(const Json& report) {
  std::string text = fmt::format("  {:10}{:>10}{:>10}{:>12}{:>10}{:>9}{:>9}\n", "transport", "alpha us", "default", "beta ns/B", "default", "GB/s", "error");
  for (const Json& transport : report["transports"])
    text += fmt::format("  {:10}{:>10.2f}{:>10.2f}{:>12.4f}{:>10.4f}{:>9}{:>7.0f} %\n", transport["transport"].get<std::string>(), transport["alpha_us"].get<double>(),
                        transport["default_alpha_us"].get<double>(), transport["beta_ns"].get<double>(), transport["default_beta_ns"].get<double>(),
                        gigabytes(transport["beta_ns"].get<double>()), 100 * transport["error"].get<double>());
  const double gamma = report["gamma_ns"].get<double>();
  return text + fmt::format("  {:10}{:>20}{:>12.4f}{:>10.4f}{:>9}\n", "reduce", "", gamma, report["default_gamma_ns"].get<double>(), gigabytes(gamma));
}

std::string trial_lines(const Json& report) {
  std::string text = fmt::format("  {:10}{:>10}  {:32}{:>14}{:>14}\n", "transport", "bytes", "algorithm", "predicted us", "measured us");
  for (const Json& trial : report["trials"]) {
    const std::string algorithm = trial["algorithm"].get<std::string>() + (trial["by_host"].get<bool>() ? ", after each host's" : "");
    text += fmt::format("  {:10}{:>10}  {:32}{:>14.1f}{:>14.1f}\n", trial["transport"].get<std::string>(), trial["bytes"].get<uint64_t>(), algorithm,
                        trial["predicted_us"].get<double>(), trial["measured_us"].get<double>());
  }
  return text;
}

std::string algorithm_lines(const Json& report) {
  std::string text = fmt::format("  {:24}{:20}{:8}  {}\n", "up to", "algorithm", "why", "measured us");
  for (const Json& decision : report["ways"]) {
    std::string measured;
    for (const Json& each : decision["measured"])
      measured += fmt::format("{}{} {:.1f}", measured.empty() ? "" : ", ", each["way"].get<std::string>(), each["us"].get<double>());
    text += fmt::format("  {:24}{:20}{:8}  {}\n", decision["class"].get<std::string>(), decision["way"].get<std::string>(),
                        decision["why"].get<std::string>(), measured);
  }
  return text;
}

}  // namespace

void merge(Json& report, const Json& other) {
  if (report.is_null()) {
    report = other;
    return;
  }
  for (const Json& transport : other["transports"]) {
    const auto same = [&](const Json& known) { return known["transport"] == transport["transport"]; };
    if (std::any_of(report["transports"].begin(), report["transports"].end(), same)) continue;
    report["transports"].push_back(transport);
    for (const Json& trial : other["trials"])
      if (trial["transport"] == transport["transport"]) report["trials"].push_back(trial);
  }
  if (!other["ways"].empty()) report["ways"] = other["ways"];
  report["gamma_ns"] = std::min(report["gamma_ns"].get<double>(), other["gamma_ns"].get<double>());
  report["collective_costs"] = costs_of(report);
}

std::string costs_of(const Json& report) {
  std::string line;
  for (const Json& transport : report["transports"]) line += transport["cost"].get<std::string>() + " ";
  return line + fmt::format("reduce={:.3g}", report["gamma_ns"].get<double>() * 1e-9);
}

std::string export_line(const Json& report) {
  return fmt::format("export POLYVERSO_COLLECTIVE_COSTS=\"{}\"\n", report["collective_costs"].get<std::string>());
}

std::string tuning_text(const Json& report) {
  const auto workers = report["workers"].get<int64_t>(), hosts = report["hosts"].get<int64_t>();
  const std::string where = hosts == 1 ? "on one machine" : fmt::format("on {} machines", hosts);
  return fmt::format("polyverso {}: what messages cost between {} workers {}\n\n{}\n", report["version"].get<std::string>(), workers, where, transport_lines(report)) +
         fmt::format("all-reduces of {} workers by the costs measured\n\n{}\n", workers, trial_lines(report)) +
         (report["ways"].empty() ? ""
                                  : fmt::format("all-reduces of {} workers in shared memory\n\n{}\n", workers, algorithm_lines(report)));
}

}  // namespace mv::tools
