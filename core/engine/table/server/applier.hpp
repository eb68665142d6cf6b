#pragma once
// Applies changes to the shards of their tables.

#include "base/pool.hpp"
#include "engine/table/server/table.hpp"

namespace mv::table {

/// Loop thread only.
class Applier {
 public:
  Applier(const Roster& roster, base::Pool& pool) : roster_(roster), pool_(pool) {}

  base::Status apply(Table& table, base::Peer client, const HeldChange& change);

 private:
  void apply_encoded(const Table& table, shard::Worker worker, const HeldChange& change);

  const Roster& roster_;
  base::Pool& pool_;
};

}  // namespace mv::table
