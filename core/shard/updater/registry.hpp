#pragma once
// The list of updaters, for those who read and write specs.

#include "shard/updater/kind.hpp"

namespace mv::shard {

/// Null if there is none of this name.
const Kind* find_kind(std::string_view name);
base::Status unknown_updater(std::string_view name);

}  // namespace mv::shard
