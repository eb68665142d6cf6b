#include "engine/table/server/checkpoint_tables.hpp"

#include "engine/table/spec_wire.hpp"

namespace mv::table {

namespace {

/// Takes a snapshot and the updater of the same moment: a caller's thread may be changing the shard's updater.
base::Status take(shard::Shard& shard, checkpoint::SavedTable& out) {
  do {
    out.snapshot.reset();
    out.entry.updater = shard.updater();
    out.entry.mark = shard.mark();
    auto snapshot = shard.snapshot();
    if (!snapshot.ok()) return snapshot.status();
    out.snapshot = std::move(snapshot).value();
  } while (!(shard.updater() == out.entry.updater));
  return {};
}

uint64_t saved_clock(const Table& table, const std::map<std::string, uint64_t>& clocks) {
  const auto said = clocks.find(table.spec.name);
  return said != clocks.end() ? said->second : table.least_clock();
}

}  // namespace

std::vector<checkpoint::TableEntry> CheckpointTables::entries(const std::map<std::string, uint64_t>& clocks) const {
  std::vector<checkpoint::TableEntry> entries;
  for (const Table* table : registry_.complete_tables())
    entries.push_back({table->spec, table->shard->updater(), saved_clock(*table, clocks), {}});
  return entries;
}

bool CheckpointTables::has_snapshot() const {
  return std::ranges::any_of(registry_.complete_tables(), [](const Table* table) { return table->shard->has_snapshot(); });
}

base::Result<std::vector<checkpoint::SavedTable>> CheckpointTables::snapshot(const std::map<std::string, uint64_t>& clocks) {
  std::vector<checkpoint::SavedTable> saved;
  for (const Table* table : registry_.complete_tables()) {
    // Not MV_EPEERLOST, upon which the save is tried again at another server.
    if (!table->gone.ok()) return base::Status(MV_ESTATE, table->gone.text());
    checkpoint::SavedTable one;
    one.entry = {table->spec, {}, saved_clock(*table, clocks), {}};
    one.rows = table->shard->rows();
    if (const base::Status failed = take(*table->shard, one); !failed.ok()) return failed;
    saved.push_back(std::move(one));
  }
  return saved;
}

namespace {

/// A checkpoint fits tables in the host's memory and on devices, whatever it was saved from.
shard::Spec placed_as(const Table& table, shard::Spec saved) {
  saved.device = table.spec.device;
  return saved;
}

}  // namespace

base::Result<std::shared_ptr<shard::Shard>> CheckpointTables::make_hidden_shard(const shard::Spec& spec) const {
  return registry_.make_hidden_shard(placed_as(*registry_.find(spec.name), spec));
}

base::Status CheckpointTables::fits(const shard::Spec& spec) const {
  const Table* const table = registry_.find(spec.name);
  if (table == nullptr) return check_spec(spec);
  if (!table->complete)
    return base::error(MV_ESTATE, "table \"{}\" is being created while a checkpoint is loaded", spec.name);
  if (table->spec.same_but_for_parameters(placed_as(*table, spec))) return {};
  return base::error(MV_EDISAGREE, "table \"{}\" is {}, but {} in the checkpoint", spec.name, table->spec.describe(), spec.describe());
}

std::shared_ptr<shard::Shard> CheckpointTables::find_shard(const std::string& name) const {
  const Table* const table = registry_.find(name);
  return table != nullptr ? table->shard : nullptr;
}

base::Status CheckpointTables::adopt(const shard::Spec& spec, std::shared_ptr<shard::Shard> shard) {
  if (registry_.find(spec.name) != nullptr)
    return base::error(MV_ESTATE, "table \"{}\" was created while it was being loaded", spec.name);
  registry_.at(registry_.add(std::make_shared<const shard::Spec>(spec), std::move(shard)))->complete = true;
  return {};
}

bool CheckpointTables::restart_clock(const std::string& name, const shard::Shard& part, uint64_t clock) {
  Table* const table = registry_.find(name);
  if (table == nullptr || table->shard.get() != &part) return false;
  table->restart(clock);
  table->gone = {};
  return true;
}

}  // namespace mv::table
