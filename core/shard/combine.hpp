#pragma once
// Rows that an add names several times.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shard/spec.hpp"

namespace mv::shard {

/// Each row once, in the order of their first appearance.
struct Combined {
  std::vector<int64_t> rows;
  std::vector<std::byte> values;  ///< of the table's dtype
};

/// Sums up the values of repeated ids, so that an updater sees each once and nothing is sent twice: in the order in
/// which they come, halves as floats that are rounded once at the end. Any number is an id.
/// @return false: nothing repeats, use the input as it is; *out is untouched
bool combine(const Spec& spec, std::span<const int64_t> rows, const std::byte* values, Combined* out);

}  // namespace mv::shard
