#pragma once
// A server's tables as checkpoints use them.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/part_file.hpp"
#include "engine/table/server/registry.hpp"

namespace mv::table {

/// `clocks` are by table; a table that they don't name has this server's own clock. Loop thread only.
class CheckpointTables {
 public:
  CheckpointTables(const Roster& roster, Registry& registry) : roster_(roster), registry_(registry) {}

  uint64_t servers() const { return roster_.servers(); }
  uint64_t index() const { return roster_.index(); }
  /// The entries of all complete tables.
  std::vector<checkpoint::TableEntry> entries(const std::map<std::string, uint64_t>& clocks) const;
  /// Whether a table has a snapshot already, of states that a worker saves, of a copy, or of a file that is being written.
  bool has_snapshot() const;
  base::Result<std::vector<checkpoint::SavedTable>> snapshot(const std::map<std::string, uint64_t>& clocks);
  /// Whether a table of a checkpoint is one of these tables, or can become one.
  base::Status fits(const shard::Spec& spec) const;
  std::shared_ptr<shard::Shard> find_shard(const std::string& name) const;
  base::Result<std::shared_ptr<shard::Shard>> make_shard(shard::SpecRef spec) const { return registry_.make_shard(std::move(spec)); }
  /// A shard for the values of a table that exists. No other process will map it.
  base::Result<std::shared_ptr<shard::Shard>> make_hidden_shard(const shard::Spec& spec) const;
  /// Adds a new table. All workers that create it find it with its values.
  base::Status adopt(const shard::Spec& spec, std::shared_ptr<shard::Shard> shard);
  /// Sets the clock of all workers. False if the table with this part is gone, even if another one has its name now.
  bool restart_clock(const std::string& name, const shard::Shard& part, uint64_t clock);

 private:
  const Roster& roster_;
  Registry& registry_;
};

}  // namespace mv::table
