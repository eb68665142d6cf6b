#pragma once
// From a checkpoint's files back into a shard.

#include "checkpoint/examine.hpp"
#include "shard/shard.hpp"

namespace mv::checkpoint {

/// Makes the shard one that takes the table's rows: its updater, and nothing stored that the checkpoint may not have.
base::Status empty_for(const TableEntry& entry, shard::Shard& shard);
/// Puts the table's rows of all files into the shard, as far as they are its own. The checkpoint is sound.
base::Status restore_table(const Examined& from, const TableEntry& entry, shard::Shard& shard);
/// Puts all rows of a shard that holds this table, with their states, into another one.
base::Status move_table(const TableEntry& entry, shard::Shard& from, shard::Shard& to);

}  // namespace mv::checkpoint
