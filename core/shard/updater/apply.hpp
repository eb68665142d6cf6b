#pragma once
// Updaters take what is added in the storage dtype; messages bring it in the table's.

#include "shard/updater/updater.hpp"

namespace mv::shard {

/// updater.apply(block) with `added`, of the table's dtype, for block.added. block.states has `states` pointers. Where the
/// updater wants sums, block must be a whole tensor: it is measured first.
void apply_added(const Updater& updater, mv_dtype dtype, const Block& block, size_t states, const std::byte* added);

/// What Block::backup wants of floats or doubles: all bits inverted.
void copy_inverted(std::byte* to, const std::byte* from, size_t bytes);

/// A state's array beside values, at most so many.
inline constexpr size_t kMostStates = 8;

}  // namespace mv::shard
