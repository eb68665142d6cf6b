#pragma once
// Applies changes to the shards of their tables.

#include "base/pool.hpp"
#include "engine/table/server/refusals.hpp"
#include "engine/table/server/table.hpp"

namespace mv::table {

/// Loop thread only.
class Applier {
 public:
  Applier(const Roster& roster, Refusals& refusals, base::Pool& pool) : roster_(roster), refusals_(refusals), pool_(pool) {}

  /// MV_ENOMEM: nothing has changed, here and in the copies.
  base::Status apply(Table& table, base::Peer client, const HeldChange& change);

 private:
  base::Status try_to_apply(Table& table, base::Peer client, const HeldChange& change);
  void apply_encoded(const Table& table, shard::Worker worker, const HeldChange& change);

  const Roster& roster_;
  Refusals& refusals_;
  base::Pool& pool_;
};

}  // namespace mv::table
