// The part of Server that checkpoints use.

#include <algorithm>

#include "base/log.hpp"
#include "engine/table/server/server.hpp"
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

}  // namespace

uint64_t Server::saved_clock(const Table& table, const std::map<std::string, uint64_t>& clocks) const {
  const auto said = clocks.find(table.spec.name);
  if (said != clocks.end()) return said->second;
  const uint64_t least = table.consistency == shard::Consistency::kStale || table.consistency == shard::Consistency::kAsync ? table.stale->least() : 0;
  return least != UINT64_MAX ? least : 0;
}

std::vector<checkpoint::TableEntry> Server::entries(const std::map<std::string, uint64_t>& clocks) const {
  std::vector<checkpoint::TableEntry> entries;
  for (const Table* table : complete_tables()) entries.push_back({table->spec, table->shard->updater(), saved_clock(*table, clocks), {}});
  return entries;
}

base::Result<std::vector<checkpoint::SavedTable>> Server::snapshot(
    const std::map<std::string, uint64_t>& clocks) {
  std::vector<checkpoint::SavedTable> saved;
  for (const Table* table : complete_tables()) {
    checkpoint::SavedTable one;
    one.entry = {table->spec, {}, saved_clock(*table, clocks), {}};
    one.rows = table->shard->rows();
    if (const base::Status failed = take(*table->shard, one); !failed.ok()) return failed;
    saved.push_back(std::move(one));
  }
  return saved;
}

base::Status Server::fits(const shard::Spec& spec) const {
  const auto known = by_name_.find(spec.name);
  if (known == by_name_.end()) return check_spec(spec);
  const Table& table = *tables_[known->second];
  if (!table.complete)
    return base::error(MV_ESTATE, "table \"{}\" is being created while a checkpoint is loaded", spec.name);
  if (table.spec.same_but_for_parameters(spec)) return {};
  return base::error(MV_EDISAGREE, "table \"{}\" is {}, but {} in the checkpoint", spec.name, table.spec.describe(),
                     spec.describe());
}

std::shared_ptr<shard::Shard> Server::find_shard(const std::string& name) const {
  const auto known = by_name_.find(name);
  return known != by_name_.end() ? tables_[known->second]->shard : nullptr;
}

base::Result<std::shared_ptr<shard::Shard>> Server::make_shard(shard::SpecRef spec) const {
  return shard::Shard::make(std::move(spec), {servers_, index_, shares_memory_, families_, models_});
}

base::Result<std::shared_ptr<shard::Shard>> Server::make_hidden_shard(const shard::Spec& spec) const {
  return shard::Shard::make(spec, {servers_, index_, false, nullptr, models_});
}

base::Status Server::adopt(const shard::Spec& spec, std::shared_ptr<shard::Shard> shard) {
  if (by_name_.contains(spec.name))
    return base::error(MV_ESTATE, "table \"{}\" was created while it was being loaded", spec.name);
  tables_[add_table(make_table(std::make_shared<const shard::Spec>(spec), std::move(shard)))]->complete = true;
  return {};
}

bool Server::restart_clock(const std::string& name, const shard::Shard& part, uint64_t clock) {
  const auto known = by_name_.find(name);
  if (known == by_name_.end() || tables_[known->second]->shard.get() != &part) return false;
  Table& table = *tables_[known->second];
  table.lost_rounds.clear();  // they belong to another history
  if (table.consistency == shard::Consistency::kMerge) table.merge_gate.restart(clock);
  if (table.consistency == shard::Consistency::kStale || table.consistency == shard::Consistency::kAsync) table.stale->restart(clock);
  table.publish_clock();
  return true;
}

}  // namespace mv::table
