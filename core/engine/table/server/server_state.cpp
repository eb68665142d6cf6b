// The state of a server's tables, and the requests that wait at their gates.

#include <algorithm>

#include "engine/table/server/server.hpp"

namespace mv::table {

base::Nanos Server::since(const rpc::Asked& asked) const {
  if (const Held* const held = held_.find(asked)) return held->since;
  const Wanted* const wanted = wanted_.find(asked);
  return wanted != nullptr ? wanted->since : clock_.now();
}

void Server::add_gate_waits(const Table& table, std::vector<cluster::Wait>& waits) const {
  const base::Nanos now = clock_.now();
  auto gate_waits = table.consistency == shard::Consistency::kStale   ? table.stale->waits()
                    : table.consistency == shard::Consistency::kMerge ? table.merge_gate.waits()
                                                        : table.gate->waits();
  for (GateWait& gated : gate_waits) {
    const base::Nanos since = this->since(gated.asked);
    cluster::Wait wait{
        gated.kind, gated.asked.client, table.spec.name, gated.number, now - since, now - std::max(since, table.moved),
        {}};
    for (auto& [worker, what] : gated.missing) wait.awaited.push_back({workers_[worker], std::move(what)});
    waits.push_back(std::move(wait));
  }
}

std::vector<cluster::Wait> Server::waits() const {
  const base::Nanos now = clock_.now();
  std::vector<cluster::Wait> waits;
  std::set<uint32_t> waiting;  // not all tables: there may be very many
  const auto note = [&](const rpc::Asked&, const auto& one) { waiting.insert(one.table); };
  held_.for_each(note);
  wanted_.for_each(note);
  for (const uint32_t number : waiting) add_gate_waits(*tables_[number], waits);
  for (const auto& [asked, readying] : readying_) {
    const auto open = std::ranges::find_if(readying.tables, [&](uint32_t number) { return !tables_[number]->complete; });
    const Table& table = *tables_[*open];
    const base::Nanos age = now - readying.since;
    const std::string others = readying.missing > 1 ? fmt::format(" and {} more", readying.missing - 1) : "";
    waits.push_back({cluster::WaitKind::kCreation, asked.client, table.spec.name + others, 0, age, age, {}});
    for (const base::Peer peer : active_)
      if (std::ranges::find(table.ready, peer, &rpc::Asked::client) == table.ready.end()) waits.back().awaited.push_back({peer, "has not created it"});
  }
  return waits;
}

std::vector<TableState> Server::states() const {
  std::vector<TableState> states;
  for (const auto& table : tables_) {
    if (table == nullptr) continue;
    TableState state{table->spec.name, table->spec.describe(), table->consistency, table->complete, {}};
    for (size_t worker = 0; worker < workers_.size() && table->consistency != shard::Consistency::kAsync; ++worker) {
      Tally tally = table->consistency == shard::Consistency::kSync ? table->gate->tally(worker) : Tally{static_cast<uint32_t>(worker), 0, 0, 0};
      tally.clock = table->clock_of(worker);
      state.tallies.push_back(tally);
    }
    states.push_back(std::move(state));
  }
  std::ranges::sort(states, {}, &TableState::name);  // in the clients' order: a report without room for all keeps the same ones
  return states;
}

/// Sorted by name.
std::vector<const Server::Table*> Server::complete_tables() const {
  std::vector<const Table*> tables;
  for (const auto& table : tables_)
    if (table != nullptr && table->complete) tables.push_back(table.get());
  std::ranges::sort(tables, {}, [](const Table* table) -> const std::string& { return table->spec.name; });
  return tables;
}

std::vector<std::shared_ptr<shard::Shard>> Server::parts() const {
  std::vector<std::shared_ptr<shard::Shard>> parts;
  for (const auto& table : tables_)
    if (table != nullptr && table->shard != nullptr) parts.push_back(table->shard);
  return parts;
}

}  // namespace mv::table
