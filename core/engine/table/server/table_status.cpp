#include "engine/table/server/table_status.hpp"

#include <algorithm>

namespace mv::table {

void TableStatus::add_gate_waits(const Table& table, std::vector<cluster::Wait>& waits) const {
  const base::Nanos now = clock_.now();
  for (GateWait& gated : table.waits()) {
    const base::Nanos since = held_.since(gated.asked);
    cluster::Wait wait{gated.kind, gated.asked.client, table.spec.name, gated.number, now - since, now - std::max(since, table.moved), {}};
    for (auto& [worker, what] : gated.missing) wait.awaited.push_back({roster_.worker(worker), std::move(what)});
    waits.push_back(std::move(wait));
  }
}

std::vector<cluster::Wait> TableStatus::waits() const {
  std::vector<cluster::Wait> waits;
  for (const uint32_t number : held_.tables()) add_gate_waits(*registry_.at(number), waits);  // not all tables: there may be very many
  creations_.add_waits(waits);
  return waits;
}

std::vector<TableState> TableStatus::states() const {
  std::vector<TableState> states;
  registry_.for_each([&](const Table& table) {
    TableState state{table.spec.name, table.spec.describe(), table.consistency, table.complete, {}, {}};
    for (size_t worker = 0; worker < roster_.workers() && table.consistency != shard::Consistency::kAsync; ++worker)
      state.tallies.push_back(table.tally(worker));
    if (table.shard != nullptr) {
      const shard::Usage usage = table.shard->usage();
      state.part = {usage.stored, usage.memory_bytes};
    }
    states.push_back(std::move(state));
  });
  std::ranges::sort(states, {}, &TableState::name);  // in the clients' order: a report without room for all keeps the same ones
  return states;
}

}  // namespace mv::table
