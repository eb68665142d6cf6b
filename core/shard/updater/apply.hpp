#pragma once
// Applies added values. Updaters take them in the storage dtype, but messages carry the table's dtype.

#include "shard/updater/updater.hpp"

namespace mv::shard {

/// updater.apply(block) with `added`, of the table's dtype, as block.added. block.states has `states` pointers. If the
/// updater has sums(), the block must be a whole tensor, which is measured first.
void apply_added(const Updater& updater, mv_dtype dtype, const Block& block, size_t states, const std::byte* added);

/// Copies floats or doubles with all bits inverted, the format of Block::backup.
void copy_inverted(std::byte* to, const std::byte* from, size_t bytes);

/// Whether all bytes are zeros: in that format, the worker got nothing.
bool is_zero(std::span<const std::byte> bytes);

/// The most state arrays that an updater can have.
inline constexpr size_t kMostStates = 8;

}  // namespace mv::shard
