#include "engine/status/report.hpp"

#include <algorithm>
#include <cmath>

namespace mv::status {

namespace {

// With texts of maximal length, these limits give about 700 KiB. A header may have 1 MiB.
constexpr size_t kMostPeers = 2048, kMostTables = 128, kMostTallies = 2048, kMostWaits = 256, kMostAwaited = 1024, kMostGroups = 64, kMostRanks = 2048;
/// Maximal lengths of texts from other processes.
constexpr size_t kMostText = 300, kMostWhat = 80, kMostTuning = 1000;

using Builder = flatbuffers::FlatBufferBuilder;
template <typename T>
using Offsets = std::vector<flatbuffers::Offset<T>>;

/// Limits the entries taken from a list, and counts those left out.
class Room {
 public:
  explicit Room(uint32_t* left_out) : left_out_(left_out) {}
  size_t take(size_t wanted, size_t& room) {
    const size_t taken = std::min(wanted, room);
    room -= taken;
    *left_out_ += static_cast<uint32_t>(wanted - taken);
    return taken;
  }

 private:
  uint32_t* const left_out_;
};

uint64_t count(base::Nanos span) { return static_cast<uint64_t>(std::max<int64_t>(0, span.count())); }
base::Nanos span(uint64_t count) { return base::Nanos(static_cast<int64_t>(std::min<uint64_t>(count, INT64_MAX))); }
/// Replaces infinities and NaN in a peer's report, which JSON cannot represent.
double finite(double rate) { return std::isfinite(rate) ? rate : 0; }
std::string text(const flatbuffers::String* string) { return string != nullptr ? string->str().substr(0, kMostText) : ""; }
flatbuffers::Offset<flatbuffers::String> write_text(Builder& fbb, const std::string& text) { return fbb.CreateString(text.substr(0, kMostText)); }

Offsets<wire::TableState> write_tables(Builder& fbb, const std::vector<table::TableState>& tables, Room& room, size_t& tallies_room) {
  Offsets<wire::TableState> written;
  size_t tables_room = kMostTables;
  const size_t taken = room.take(tables.size(), tables_room);
  for (const table::TableState& table : std::span(tables).first(taken)) {
    Offsets<wire::Tally> tallies;
    for (const table::Tally& tally : std::span(table.tallies).first(room.take(table.tallies.size(), tallies_room)))
      tallies.push_back(wire::CreateTally(fbb, tally.worker, tally.adds, tally.gets, tally.clock));
    const auto name = write_text(fbb, table.name), what = write_text(fbb, table.what);
    const auto list = fbb.CreateVector(tallies);
    const wire::TablePart part = table.part ? wire::TablePart(table.part->stored, table.part->memory_bytes) : wire::TablePart();
    const auto consistency = static_cast<uint8_t>(table.consistency);
    written.push_back(wire::CreateTableState(fbb, name, what, consistency, table.complete, list, table.part ? &part : nullptr));
  }
  return written;
}

Offsets<wire::Wait> write_waits(Builder& fbb, const std::vector<cluster::Wait>& waits, Room& room) {
  Offsets<wire::Wait> written;
  size_t waits_room = kMostWaits, awaited_room = kMostAwaited;
  for (const cluster::Wait& wait : std::span(waits).first(room.take(waits.size(), waits_room))) {
    Offsets<wire::Awaited> awaited;
    for (const cluster::Awaited& each : std::span(wait.awaited).first(room.take(wait.awaited.size(), awaited_room)))
      awaited.push_back(wire::CreateAwaited(fbb, each.peer, fbb.CreateString(each.what.substr(0, kMostWhat))));
    const auto table = write_text(fbb, wait.table);
    const auto list = fbb.CreateVector(awaited);
    written.push_back(wire::CreateWait(fbb, static_cast<wire::Waiting>(wait.kind), wait.who, table, wait.number, count(wait.age), count(wait.still), list));
  }
  return written;
}

Offsets<wire::GroupState> write_groups(Builder& fbb, const std::vector<collective::GroupState>& groups, Room& room) {
  Offsets<wire::GroupState> written;
  size_t groups_room = kMostGroups, ranks_room = kMostRanks;
  for (const collective::GroupState& group : std::span(groups).first(room.take(groups.size(), groups_room))) {
    const auto ranks = fbb.CreateVector(group.ranks.data(), room.take(group.ranks.size(), ranks_room));
    const auto transport = write_text(fbb, group.transport), broken = write_text(fbb, group.broken), tuning = fbb.CreateString(group.tuning.substr(0, kMostTuning));
    written.push_back(wire::CreateGroupState(fbb, group.id, ranks, group.rank, transport, group.operations, broken, tuning));
  }
  return written;
}

std::vector<collective::GroupState> read_groups(const flatbuffers::Vector<flatbuffers::Offset<wire::GroupState>>* groups) {
  std::vector<collective::GroupState> read;
  if (groups == nullptr) return read;
  for (const wire::GroupState* group : *groups) {
    read.push_back({group->id(), {}, group->rank(), text(group->transport()), group->operations(), text(group->broken()), group->tuning() != nullptr ? group->tuning()->str().substr(0, kMostTuning) : ""});
    if (group->ranks() != nullptr) read.back().ranks.assign(group->ranks()->begin(), group->ranks()->end());
  }
  return read;
}

std::vector<table::TableState> read_tables(const flatbuffers::Vector<flatbuffers::Offset<wire::TableState>>* tables) {
  std::vector<table::TableState> read;
  if (tables == nullptr) return read;
  for (const wire::TableState* table : *tables) {
    table::TableState& state = read.emplace_back();
    state.name = text(table->name());
    state.what = text(table->what());
    state.consistency = static_cast<shard::Consistency>(std::min<uint8_t>(table->consistency(), static_cast<uint8_t>(shard::Consistency::kMerge)));
    state.complete = table->complete();
    if (table->part() != nullptr) state.part = {table->part()->stored(), table->part()->memory()};
    if (table->tallies() == nullptr) continue;
    for (const wire::Tally* tally : *table->tallies()) state.tallies.push_back({tally->worker(), tally->adds(), tally->gets(), tally->clock()});
  }
  return read;
}

std::vector<cluster::Wait> read_waits(const flatbuffers::Vector<flatbuffers::Offset<wire::Wait>>* waits) {
  std::vector<cluster::Wait> read;
  if (waits == nullptr) return read;
  for (const wire::Wait* wait : *waits) {
    if (wait->kind() > wire::Waiting::MAX) continue;
    cluster::Wait& each = read.emplace_back();
    each = {static_cast<cluster::WaitKind>(wait->kind()), wait->who(), text(wait->table()), wait->number(), span(wait->age_ns()), span(wait->still_ns()), {}};
    if (wait->awaited() == nullptr) continue;
    for (const wire::Awaited* awaited : *wait->awaited()) each.awaited.push_back({awaited->peer(), text(awaited->what())});
  }
  return read;
}

/// "tcp", "tcp TLS_AES_128_GCM_SHA256"; empty without a path
std::string kind_of(const Path& path) { return path.cipher.empty() ? path.transport : path.transport + " " + path.cipher; }

void add_traffic(PeerState& total, const PeerState& more) {
  total.path.sent += more.path.sent;
  total.path.received += more.path.received;
  total.send_rate += more.send_rate;
  total.receive_rate += more.receive_rate;
}

}  // namespace

PeerState total_of(const Report& report) {
  PeerState total = report.rest;
  for (const PeerState& each : report.peers) add_traffic(total, each);
  return total;
}

void shorten_peers(Report& report) {
  if (report.peers.size() <= kBusiestPairs) return;
  const auto rest = report.peers.begin() + static_cast<ptrdiff_t>(kBusiestPairs);
  std::ranges::nth_element(report.peers, rest, std::ranges::greater(), &PeerState::send_rate);
  for (auto peer = rest; peer != report.peers.end(); ++peer) {
    add_traffic(report.rest, *peer);
    ++report.rest_transports[kind_of(peer->path)];
  }
  report.peers.erase(rest, report.peers.end());
}

std::map<std::string, uint32_t> transports_of(const Report& report) {
  std::map<std::string, uint32_t> counts = report.rest_transports;
  for (const PeerState& each : report.peers) ++counts[kind_of(each.path)];
  counts.erase("");
  return counts;
}

flatbuffers::Offset<wire::Report> write_report(Builder& fbb, uint64_t number, const Report& report) {
  uint32_t left_out = report.left_out;
  Room room(&left_out);
  size_t peers_room = kMostPeers, tallies_room = kMostTallies;
  Offsets<wire::PeerState> peers;
  for (const PeerState& each : std::span(report.peers).first(room.take(report.peers.size(), peers_room))) {
    const auto transport = write_text(fbb, each.path.transport), cipher = write_text(fbb, each.path.cipher);
    peers.push_back(wire::CreatePeerState(fbb, each.peer, transport, each.path.sent, each.path.received, each.send_rate, each.receive_rate,
                                          count(each.silence), cipher));
  }
  const auto own = fbb.CreateVector(write_tables(fbb, report.own, room, tallies_room));
  const auto held = fbb.CreateVector(write_tables(fbb, report.held, room, tallies_room));
  const auto waits = fbb.CreateVector(write_waits(fbb, report.waits, room));
  const auto groups = fbb.CreateVector(write_groups(fbb, report.groups, room));
  Offsets<wire::Reported> reported;
  size_t reported_room = ReportedNumbers::kMostNames;
  for (const ReportedNumber& each : std::span(report.reported).first(room.take(report.reported.size(), reported_room))) {
    const auto name = write_text(fbb, each.name);
    reported.push_back(wire::CreateReported(fbb, name, each.value, each.count, count(each.age)));
  }
  const auto numbers = fbb.CreateVector(reported);
  const auto phase = write_text(fbb, report.phase);
  const auto metrics = report.metrics.empty() ? flatbuffers::Offset<flatbuffers::String>() : write_text(fbb, report.metrics);
  const auto choice = report.choice.empty() ? flatbuffers::Offset<flatbuffers::String>() : write_text(fbb, report.choice);
  const auto list = fbb.CreateVector(peers);
  const PeerState& sum = report.rest;
  flatbuffers::Offset<wire::PeerState> rest;
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<wire::TransportCount>>> rest_transports;
  if (!report.rest_transports.empty()) {
    rest = wire::CreatePeerState(fbb, 0, 0, sum.path.sent, sum.path.received, sum.send_rate, sum.receive_rate);
    Offsets<wire::TransportCount> counts;
    for (const auto& [transport, members] : report.rest_transports)
      counts.push_back(wire::CreateTransportCount(fbb, write_text(fbb, transport), members));
    rest_transports = fbb.CreateVector(counts);
  }
  return wire::CreateReport(fbb, number, phase, count(report.uptime), report.in_flight, list, own, held, waits, left_out, metrics, groups, numbers,
                            rest, rest_transports, /*log=*/0, /*log_left_out=*/0, choice);
}

flatbuffers::Offset<wire::Report> write_log(Builder& fbb, uint64_t number, const base::LogTail& tail) {
  const auto lines = fbb.CreateVectorOfStrings(tail.lines);
  wire::ReportBuilder written(fbb);
  written.add_number(number);
  written.add_log(lines);
  written.add_log_left_out(tail.left_out);
  return written.Finish();
}

base::LogTail read_log(const wire::Report& wire) {
  base::LogTail tail;
  if (wire.log() != nullptr)
    for (const flatbuffers::String* line : *wire.log()) {
      if (tail.lines.size() >= base::kMostKeptLines) break;
      tail.lines.push_back(line->str().substr(0, 2 * base::kLongestKeptLine));
    }
  tail.left_out = wire.log_left_out();
  return tail;
}

Report read_report(const wire::Report& wire) {
  Report report;
  report.phase = text(wire.phase());
  report.uptime = span(wire.uptime_ns());
  report.in_flight = wire.in_flight();
  if (wire.peers() != nullptr)
    for (const wire::PeerState* each : *wire.peers())
      report.peers.push_back({each->peer(),
                              {text(each->transport()), each->sent(), each->received(), text(each->cipher())},
                              finite(each->send_rate()),
                              finite(each->receive_rate()),
                              span(each->silence_ns())});
  report.own = read_tables(wire.own());
  report.held = read_tables(wire.held());
  report.waits = read_waits(wire.waits());
  report.groups = read_groups(wire.groups());
  if (wire.reported() != nullptr)
    for (const wire::Reported* each : *wire.reported()) report.reported.push_back({text(each->name()), each->value(), each->count(), span(each->age_ns())});
  if (const wire::PeerState* rest = wire.rest())
    report.rest = {0, {"", rest->sent(), rest->received(), ""}, finite(rest->send_rate()), finite(rest->receive_rate()), {}};
  if (wire.rest_transports() != nullptr)
    for (const wire::TransportCount* each : *wire.rest_transports()) report.rest_transports[text(each->transport())] += each->count();
  report.left_out = wire.left_out();
  report.metrics = text(wire.metrics());
  report.choice = text(wire.choice());
  return report;
}

}  // namespace mv::status
