// The overview as JSON, for programs.

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_map>

#include "base/json_writer.hpp"
#include "engine/cluster/succession.hpp"
#include "engine/status/overview.hpp"

namespace mv::status {

namespace {

using base::JsonWriter;
constexpr std::array<const char*, 3> kStateNames = {"here", "finished", "lost"};


/// Converts -1 (not a worker, or not a server) to null.
std::optional<int64_t> number_or_null(int64_t number) { return number < 0 ? std::nullopt : std::optional(number); }
std::optional<std::string> text_or_null(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

/// Ranks by peer, hashed, because a lookup is made for every pair of peers.
class Ranks {
 public:
  explicit Ranks(const cluster::View& view) {
    for (const cluster::Member& member : view.members) ranks_.emplace(member.peer, member.rank);
  }
  std::optional<uint32_t> of(base::Peer peer) const {
    const auto found = ranks_.find(peer);
    return found != ranks_.end() ? std::optional(found->second) : std::nullopt;
  }

 private:
  std::unordered_map<base::Peer, uint32_t> ranks_;
};

std::optional<double> silence_of(const Overview& overview, base::Peer peer) {
  const auto silence = overview.silence.find(peer);
  return silence != overview.silence.end() ? std::optional(base::seconds(silence->second)) : std::nullopt;
}

void write_traffic(JsonWriter& json, const PeerState& state) {
  json.field("sent_bytes", state.path.sent);
  json.field("received_bytes", state.path.received);
  json.field("sent_bytes_per_second", state.send_rate);
  json.field("received_bytes_per_second", state.receive_rate);
}

void write_peers(JsonWriter& json, const Ranks& ranks, const Report& report) {
  json.array("peers", [&] {
    for (const PeerState& each : report.peers)
      json.object([&] {
        json.field("rank", ranks.of(each.peer));
        json.field("transport", each.path.transport);
        json.field("cipher", each.path.cipher);
        write_traffic(json, each);
        json.field("silence_seconds", base::seconds(each.silence));
      });
  });
}

void write_report(JsonWriter& json, const Report& report) {
  json.field("phase", report.phase);
  json.field("uptime_seconds", base::seconds(report.uptime));
  json.field("metrics", text_or_null(report.metrics));
  json.field("transport_choice", report.choice);
  json.field("keeper", text_or_null(report.keeper));
  json.field("in_flight_bytes", report.in_flight);
  write_traffic(json, total_of(report));
  json.field("left_out", report.left_out);
  json.array("reports", [&] {
    for (const ReportedNumber& each : report.reported)
      json.object([&] {
        json.field("name", each.name);
        json.field("value", each.value);
        json.field("count", each.count);
        json.field("seconds", base::seconds(each.age));
      });
  });
  json.object("transports", [&] {
    for (const auto& [transport, count] : transports_of(report)) json.field(transport, count);
  });
}

void write_member(JsonWriter& json, const Overview& overview, const Ranks& ranks, const cluster::Member& member) {
  const cluster::View& view = overview.view;
  json.field("rank", member.rank);
  json.field("worker", number_or_null(view.worker_id(member.peer)));
  json.field("server", number_or_null(view.server_id(member.peer)));
  json.field("host", member.host);
  json.field("pid", member.pid);
  json.field("incarnation", fmt::format("{:016x}", member.peer));
  json.field("address", member.address);
  json.field("state", member.drained ? "left" : member.draining ? "draining" : kStateNames[static_cast<size_t>(member.state)]);
  json.field("why", member.why);
  json.field("silence_seconds", silence_of(overview, member.peer));
  const auto found = overview.reports.find(member.peer);
  json.field("answered", found != overview.reports.end());
  if (found == overview.reports.end()) return;
  write_report(json, found->second);
  if (!overview.is_short()) write_peers(json, ranks, found->second);
}

/// The pairs with the most bytes per second.
void write_busiest(JsonWriter& json, const Overview& overview, const Ranks& ranks) {
  std::vector<std::pair<base::Peer, const PeerState*>> pairs;
  for (const auto& [peer, report] : overview.reports)
    for (const PeerState& each : report.peers)
      if (!each.path.transport.empty()) pairs.emplace_back(peer, &each);
  const size_t shown = std::min(pairs.size(), kBusiestPairs);
  const auto rate = [](const auto& pair) { return pair.second->send_rate; };
  std::ranges::partial_sort(pairs, pairs.begin() + static_cast<ptrdiff_t>(shown), std::ranges::greater(), rate);
  json.array("busiest", [&] {
    for (const auto& [from, to] : std::span(pairs).first(shown))
      json.object([&] {
        json.field("from", ranks.of(from));
        json.field("to", ranks.of(to->peer));
        json.field("transport", to->path.transport);
        json.field("sent_bytes_per_second", to->send_rate);
      });
  });
}

void write_table(JsonWriter& json, const cluster::View& view, const TableOverview& table) {
  const table::TableState& state = table.state;
  json.field("name", state.name);
  json.field("what", state.what);
  json.field("consistency", kConsistencyNames[static_cast<size_t>(state.consistency)]);
  json.field("complete", state.complete);
  json.array("workers", [&] {
    for (size_t i = 0; i < state.tallies.size(); ++i)
      json.object([&] {
        const table::Tally& tally = state.tallies[i];
        json.field("worker", tally.worker);
        json.field("adds", tally.adds);
        json.field("gets", tally.gets);
        json.field("clock", tally.clock);
        json.field("own_word", static_cast<bool>(table.own_word[i]));
      });
  });
  json.array("servers", [&] {
    for (const auto& [peer, part] : table.parts)
      json.object([&] {
        json.field("server", number_or_null(view.server_id(peer)));
        json.field("stored", part.stored);
        json.field("memory_bytes", part.memory_bytes);
      });
  });
}

void write_part(JsonWriter& json, const Overview& overview, const Ranks& ranks, const cluster::Member& server) {
  const cluster::View& view = overview.view;
  const cluster::Member* const moves_to = cluster::destination(view, server, overview.replicas);
  json.field("server", number_or_null(view.server_id(server.peer)));
  json.field("served_by", ranks.of(view.serving(server)));
  json.field("backup", ranks.of(view.backup_of(server)));
  json.array("backups", [&] {
    const auto chain = view.chain_of(server);
    for (size_t i = 1; i < chain.size(); ++i) json.value(ranks.of(chain[i]));
  });
  json.field("next_backup", ranks.of(view.next_backup_of(server)));
  json.field("moves_to", ranks.of(moves_to != nullptr ? moves_to->peer : base::kNobody));
}

void write_group(JsonWriter& json, const Ranks& ranks, const GroupOverview& group) {
  json.field("transport", group.transport);
  json.field("broken", text_or_null(group.broken));
  json.field("tuning", text_or_null(group.tuning));
  json.array("ranks", [&] {
    for (const base::Peer peer : group.ranks)
      json.object([&] {
        json.field("rank", ranks.of(peer));
        const auto told = group.operations.find(peer);
        json.field("operations", told != group.operations.end() ? std::optional(told->second) : std::nullopt);
      });
  });
}

void write_wait(JsonWriter& json, const Overview& overview, const Ranks& ranks, const cluster::Wait& wait) {
  const cluster::View& view = overview.view;
  json.field("kind", cluster::kWaitNames[static_cast<size_t>(wait.kind)]);
  json.field("worker", number_or_null(view.worker_id(wait.who)));
  json.field("rank", ranks.of(wait.who));
  json.field("table", text_or_null(wait.table));
  json.field("number", wait.number);
  json.field("seconds", base::seconds(wait.age));
  json.field("text", sentence_of(overview, wait));
  json.array("awaited", [&] {
    for (const auto& [peer, what] : wait.awaited)
      json.object([&] {
        json.field("rank", ranks.of(peer));
        json.field("who", view.short_name(peer));
        json.field("what", what);
        json.field("silence_seconds", silence_of(overview, peer));
      });
  });
}

/// Writes an array of objects; write(one) writes the fields of each.
template <typename List, typename Write>
void write_list(JsonWriter& json, std::string_view name, const List& list, const Write& write) {
  json.array(name, [&] {
    for (const auto& one : list) json.object([&] { write(one); });
  });
}

}  // namespace

std::string to_json(const Overview& overview) {
  const cluster::View& view = overview.view;
  const Ranks ranks(view);
  JsonWriter json;
  json.object([&] {
    json.field("sync", view.sync);
    json.field("epoch", view.epoch);
    json.field("seen_by", ranks.of(overview.seen_by));
    json.field("joining", view.members.empty());
    json.field("missing", overview.missing);
    json.field("max_servers", view.servers().size());
    json.field("max_workers", view.workers().size());
    json.field("wanted_servers", view.wanted_servers);
    write_list(json, "members", view.taken_places(), [&](const cluster::Member* member) { write_member(json, overview, ranks, *member); });
    write_list(json, "tables", tables_of(overview), [&](const TableOverview& table) { write_table(json, view, table); });
    write_list(json, "parts", view.servers(), [&](const cluster::Member* server) { write_part(json, overview, ranks, *server); });
    write_list(json, "events", overview.news, [&](const Overview::News& item) {
      json.field("kind", std::string(cluster::kChangeNames.at(static_cast<size_t>(item.event.change))));
      json.field("rank", item.event.rank);
      json.field("epoch", item.event.epoch);
      json.field("reason", item.event.reason);
      json.field("age_seconds", base::seconds(item.age));
    });
    write_list(json, "groups", groups_of(overview), [&](const GroupOverview& group) { write_group(json, ranks, group); });
    write_list(json, "waits", waits_of(overview), [&](const cluster::Wait& wait) { write_wait(json, overview, ranks, wait); });
    if (overview.is_short()) write_busiest(json, overview, ranks);
  });
  return json.take();
}

std::string log_json(uint32_t rank, const base::LogTail& tail) {
  JsonWriter json;
  json.object([&] {
    json.field("rank", rank);
    json.field("lines", tail.lines);
    json.field("left_out", tail.left_out);
  });
  return json.take();
}

}  // namespace mv::status
