// The overview for programs.

#include <unordered_map>

#include <nlohmann/json.hpp>

#include "engine/status/overview.hpp"

namespace mv::status {

namespace {

using Json = nlohmann::ordered_json;
constexpr std::array<const char*, 3> kStateNames = {"here", "finished", "lost"};

double seconds(base::Nanos span) { return std::chrono::duration<double>(span).count(); }

/// -1 becomes null: it is no worker, or no server.
Json number_or_null(int64_t number) { return number < 0 ? Json() : Json(number); }

/// Looked up for every pair of peers.
class Ranks {
 public:
  explicit Ranks(const cluster::View& view) {
    for (const cluster::Member& member : view.members) ranks_.emplace(member.peer, member.rank);
  }
  Json of(base::Peer peer) const {
    const auto found = ranks_.find(peer);
    return found != ranks_.end() ? Json(found->second) : Json();
  }

 private:
  std::unordered_map<base::Peer, uint32_t> ranks_;
};

Json silence_of(const Overview& overview, base::Peer peer) {
  const auto silence = overview.silence.find(peer);
  return silence != overview.silence.end() ? Json(seconds(silence->second)) : Json();
}

void add_traffic(Json& json, const PeerStanding& standing) {
  json["sent_bytes"] = standing.way.sent;
  json["received_bytes"] = standing.way.received;
  json["sent_bytes_per_second"] = standing.send_rate;
  json["received_bytes_per_second"] = standing.receive_rate;
}

Json json_of(const Overview& overview, const Ranks& ranks, const cluster::Member& member) {
  const cluster::View& view = overview.view;
  Json json{{"rank", member.rank},
            {"worker", number_or_null(view.worker_id(member.peer))},
            {"server", number_or_null(view.server_id(member.peer))},
            {"host", member.host},
            {"pid", member.pid},
            {"incarnation", fmt::format("{:016x}", member.peer)},
            {"address", member.address},
            {"state", kStateNames[static_cast<size_t>(member.state)]},
            {"why", member.why},
            {"silence_seconds", silence_of(overview, member.peer)}};
  const auto found = overview.reports.find(member.peer);
  json["answered"] = found != overview.reports.end();
  if (found == overview.reports.end()) return json;
  const Report& report = found->second;
  json["phase"] = report.phase;
  json["uptime_seconds"] = seconds(report.uptime);
  json["metrics"] = report.metrics.empty() ? Json(nullptr) : Json(report.metrics);
  json["in_flight_bytes"] = report.in_flight;
  add_traffic(json, total_of(report));
  json["left_out"] = report.left_out;
  json["peers"] = Json::array();
  for (const PeerStanding& each : report.peers) {
    Json peer{{"rank", ranks.of(each.peer)}, {"road", each.way.road}};
    add_traffic(peer, each);
    peer["silence_seconds"] = seconds(each.silence);
    json["peers"].push_back(std::move(peer));
  }
  return json;
}

Json json_of(const TableOverview& table) {
  const ps::TableStanding& standing = table.standing;
  Json json{{"name", standing.name},
            {"what", standing.what},
            {"pace", kPaceNames[static_cast<size_t>(standing.pace)]},
            {"complete", standing.complete},
            {"workers", Json::array()}};
  for (size_t i = 0; i < standing.tallies.size(); ++i) {
    const ps::Tally& tally = standing.tallies[i];
    json["workers"].push_back({{"worker", tally.worker},
                               {"adds", tally.adds},
                               {"gets", tally.gets},
                               {"clock", tally.clock},
                               {"own_word", static_cast<bool>(table.own_word[i])}});
  }
  return json;
}

Json json_of(const Ranks& ranks, const GroupOverview& group) {
  Json json{
      {"road", group.road}, {"broken", group.broken.empty() ? Json() : Json(group.broken)}, {"ranks", Json::array()}};
  for (const base::Peer peer : group.ranks) {
    const auto told = group.operations.find(peer);
    json["ranks"].push_back(
        {{"rank", ranks.of(peer)}, {"operations", told != group.operations.end() ? Json(told->second) : Json()}});
  }
  return json;
}

Json json_of(const Overview& overview, const Ranks& ranks, const cluster::Wait& wait) {
  const cluster::View& view = overview.view;
  Json json{{"kind", cluster::kWaitNames[static_cast<size_t>(wait.kind)]},
            {"worker", number_or_null(view.worker_id(wait.who))},
            {"rank", ranks.of(wait.who)},
            {"table", wait.table.empty() ? Json() : Json(wait.table)},
            {"number", wait.number},
            {"seconds", seconds(wait.age)},
            {"awaited", Json::array()}};
  for (const auto& [peer, what] : wait.awaited)
    json["awaited"].push_back({{"rank", ranks.of(peer)},
                               {"who", view.short_name(peer)},
                               {"what", what},
                               {"silence_seconds", silence_of(overview, peer)}});
  return json;
}

}  // namespace

std::string to_json(const Overview& overview) {
  const cluster::View& view = overview.view;
  const Ranks ranks(view);
  Json json{{"sync", view.sync},
            {"epoch", view.epoch},
            {"seen_by", ranks.of(overview.seen_by)},
            {"joining", view.members.empty()},
            {"missing", overview.missing}};
  for (const char* list : {"members", "tables", "groups", "waits"}) json[list] = Json::array();
  for (const cluster::Member& member : view.members) json["members"].push_back(json_of(overview, ranks, member));
  for (const TableOverview& table : tables_of(overview)) json["tables"].push_back(json_of(table));
  for (const GroupOverview& group : groups_of(overview)) json["groups"].push_back(json_of(ranks, group));
  for (const cluster::Wait& wait : waits_of(overview)) json["waits"].push_back(json_of(overview, ranks, wait));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);  // names may hold any bytes
}

}  // namespace mv::status
