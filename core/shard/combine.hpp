#pragma once
// Combines the rows that an add names several times.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shard/spec.hpp"

namespace mv::shard {

/// Rows without repeats, in the order of their first appearance.
struct Combined {
  std::vector<int64_t> rows;
  std::vector<std::byte> values;  ///< of the table's dtype
};

/// Sums the values of repeated ids, so that an updater sees each id once and no row is sent twice. Sums in the order of
/// the input. 16-bit floats are summed as float32 and rounded once at the end. Any number is an id.
/// @return false: nothing repeats, use the input unchanged; *out is untouched
bool combine(const Spec& spec, std::span<const int64_t> rows, const std::byte* values, Combined* out);

}  // namespace mv::shard
