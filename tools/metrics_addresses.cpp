#include "metrics_addresses.hpp"

#include <polyverso/polyverso.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "library_text.hpp"

namespace mv::tools {

std::vector<std::string> metrics_addresses(const std::string& command, const ClusterChoice& cluster, const std::vector<std::string>& http) {
  if (!http.empty()) return http;
  const Target target = targets_of(command, cluster, true).front();
  std::string text;
  const auto ask = [&](char* out, uint64_t capacity, uint64_t* length) {
    return mv_cluster_status_text(target.settings.c_str(), MV_JSON, out, capacity, length);
  };
  if (const mv_status asked = whole_text(ask, text); asked != MV_OK)
    throw std::runtime_error(fmt::format("{}: {}{}", command, mv_last_error(), what_to_do(asked, target)));
  std::vector<std::string> addresses;
  const auto status = nlohmann::json::parse(text);
  for (const auto& member : status.at("members")) {
    if (member.at("answered").get<bool>() && !member.at("metrics").is_null()) {
      addresses.push_back(member.at("metrics").get<std::string>());
      continue;
    }
    fmt::print(stderr, "polyverso {}: nothing from rank {}: it {}\n", command, member.at("rank").get<int64_t>(),
               member.at("answered").get<bool>() ? "serves no metrics" : "does not answer");
  }
  if (addresses.empty() && status.at("joining").get<bool>()) {
    const auto missing = status.at("missing").get<std::string>();
    throw std::runtime_error(fmt::format("{}: the cluster is forming{}; try again when all processes are there", command,
                                         missing.empty() ? "" : ": " + missing));
  }
  if (addresses.empty())
    throw std::runtime_error(fmt::format("{}: no process of this cluster serves its metrics; start it with `polyverso run --metrics PORT`, or set "
                                         "metrics (POLYVERSO_METRICS) for its processes", command));
  return addresses;
}

}  // namespace mv::tools
