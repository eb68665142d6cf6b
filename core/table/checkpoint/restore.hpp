#pragma once
// From a checkpoint's files back into a shard.

#include "table/checkpoint/examine.hpp"
#include "table/shard.hpp"

namespace mv::table::checkpoint {

/// Makes the shard one that takes the table's rows: its updater, and nothing stored that the checkpoint may not have.
base::Status empty_for(const TableEntry& entry, Shard& shard);
/// Puts the table's rows of all files into the shard, as far as they are its own. The checkpoint is sound.
base::Status restore_table(const Examined& from, const TableEntry& entry, Shard& shard);
/// Puts all rows of a shard that holds this table, with their states, into another one.
base::Status move_table(const TableEntry& entry, Shard& from, Shard& to);

}  // namespace mv::table::checkpoint
