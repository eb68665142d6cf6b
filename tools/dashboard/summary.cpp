#include "dashboard/summary.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace mv::tools {
namespace {

using Json = nlohmann::json;

struct Pair {
  double rate = 0;  ///< bytes per second
  Json from, to, transport;
};

void note_peers(Json& member, std::vector<Pair>& pairs) {
  Json counts = Json::object();
  for (Json& peer : member["peers"]) {
    const Json transport = peer.value("transport", Json()), rate = peer.value("sent_bytes_per_second", Json());
    if (!transport.is_string() || !rate.is_number()) continue;
    Json& count = counts[transport.get<std::string>()];
    count = count.is_null() ? 1 : count.get<int>() + 1;
    pairs.push_back({rate.get<double>(), member.value("rank", Json()), peer.value("rank", Json()), transport});
  }
  member["transports"] = std::move(counts);
  member.erase("peers");
}

}  // namespace

bool summarize_pairs(Json& status) {
  if (!status.is_object() || !status.contains("members") || !status["members"].is_array()) return false;
  Json& members = status["members"];
  if (members.size() <= kMostMembersWithPairs) return false;
  std::vector<Pair> pairs;
  for (Json& member : members)
    if (member.is_object() && member.contains("peers") && member["peers"].is_array()) note_peers(member, pairs);
  const size_t shown = std::min(pairs.size(), kBusiestPairs);
  std::ranges::partial_sort(pairs, pairs.begin() + static_cast<std::ptrdiff_t>(shown), std::ranges::greater(), &Pair::rate);
  status["busiest"] = Json::array();
  for (const Pair& pair : std::span(pairs).first(shown))
    status["busiest"].push_back({{"from", pair.from}, {"to", pair.to}, {"transport", pair.transport}, {"sent_bytes_per_second", pair.rate}});
  return true;
}

}  // namespace mv::tools
