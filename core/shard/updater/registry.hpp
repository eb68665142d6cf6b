#pragma once
// Lookup of updaters by name, for code that reads and writes specs.

#include "shard/updater/kind.hpp"

namespace mv::shard {

/// The updater with this name, or null.
const Kind* find_kind(std::string_view name);
base::Status unknown_updater(std::string_view name);

}  // namespace mv::shard
