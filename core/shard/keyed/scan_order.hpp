#pragma once
// The order in which keyed shards are scanned: that of the hashes of their ids, which does not change when a shard grows. A
// cursor is the upper 40 bits of a hash.

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/mix.hpp"
#include "shard/shard.hpp"

namespace mv::shard {

inline constexpr unsigned kCursorBits = 40;

/// Rows in the order of their hashes, which differ because base::mix() is a bijection.
struct FoundRow {
  uint64_t hash;
  uint32_t slot;
  int64_t id;
  auto operator<=>(const FoundRow&) const = default;
};
using Found = std::vector<FoundRow>;

inline int64_t cursor_at(uint64_t hash) { return static_cast<int64_t>(hash >> (64 - kCursorBits)); }

/// What an index has at one position.
struct IndexEntry {
  bool is_empty;  ///< a search ends here
  bool is_used;   ///< it has a row
  uint32_t slot;
  int64_t id;
};

/// The entries of an index with a hash prefix of at least `from`, in order. Returns all of them, or more than `room` without
/// gaps. Index: capacity(), a power of two or 0; home(hash); entry(position) -> IndexEntry. Hashes are base::mix(id).
template <typename Index>
Found find_from(const Index& index, uint64_t from, size_t room) {
  Found found;
  const size_t capacity = index.capacity();
  if (capacity == 0) return found;
  // An entry is at its home or in the run of used positions after it. A run can wrap around the end of the table.
  for (size_t at = index.home(from << (64 - kCursorBits)); at < 2 * capacity; ++at) {
    const size_t position = at % capacity;
    const IndexEntry entry = index.entry(position);
    if (entry.is_empty) {
      if (at >= capacity || found.size() > room) break;
      continue;
    }
    if (!entry.is_used) continue;
    const uint64_t hash = base::mix(static_cast<uint64_t>(entry.id));
    const bool lies_beyond_the_end = index.home(hash) > position;
    if (hash >> (64 - kCursorBits) >= from && lies_beyond_the_end == (at >= capacity)) found.push_back({hash, entry.slot, entry.id});
  }
  std::ranges::sort(found);
  return found;
}

/// How many of the entries go into `room`. Those with one prefix stay together, because a cursor cannot separate them.
inline size_t count_together(const Found& found, size_t room) {
  size_t count = std::min(found.size(), room);
  if (count < found.size())
    while (count > 0 && cursor_at(found[count - 1].hash) == cursor_at(found[count].hash)) --count;
  return count;
}

inline base::Status check_cursor(const Spec& spec, int64_t cursor, size_t most) {
  if (cursor >= 0 && cursor >> kCursorBits == 0 && most > 0) return {};
  return base::error(MV_EINVAL, "table \"{}\": scan for {} rows from {}, which is not a cursor of this table", spec.name, most, cursor);
}
inline base::Status no_room_for_next(const Spec& spec, size_t most) {
  return base::error(MV_EINVAL, "table \"{}\": the next keys can only be returned together: room for {} rows is not enough", spec.name, most);
}

}  // namespace mv::shard
