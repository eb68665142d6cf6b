#pragma once
// Restores shards from the files of a checkpoint.

#include "checkpoint/examine.hpp"
#include "shard/shard.hpp"

namespace mv::checkpoint {

/// Prepares a shard for the rows of a table: sets the updater, and erases all rows of a keyed shard.
base::Status empty_for(const TableEntry& entry, shard::Shard& shard);
/// Restores a shard's rows of a table from all files. The checkpoint must be sound.
base::Status restore_table(const Examined& from, const TableEntry& entry, shard::Shard& shard);
/// Replaces the contents of `to` by all rows of `from`, with their states. Both are shards of this table.
base::Status move_table(const TableEntry& entry, shard::Shard& from, shard::Shard& to);

}  // namespace mv::checkpoint
