// Scans the rows of a keyed shard in the order of the hashes of their ids, which does not change when the shard grows.
// A cursor is the upper 40 bits of a hash.

#include <algorithm>
#include <utility>

#include "base/mix.hpp"
#include "math/kernels.hpp"
#include "shard/keyed/keyed.hpp"

namespace mv::shard {

namespace {
constexpr unsigned kCursorBits = 40;
}

/// The entries of a partition with a hash prefix of at least `from`, in order. Returns all of them, or more than `room`
/// without gaps.
KeyedShard::Found KeyedShard::find_from(const Records& records, uint64_t from, size_t room) const {
  Found found;
  const Index& index = records.index();
  const size_t capacity = index.capacity();
  if (capacity == 0) return found;
  // An entry is at its home or in the run of used positions after it. A run can wrap around the end of the table.
  for (size_t at = index.home(from << (64 - kCursorBits)); at < 2 * capacity; ++at) {
    const size_t position = at % capacity;
    if (index.is_empty(position)) {
      if (at >= capacity || found.size() > room) break;
      continue;
    }
    const uint32_t slot = index.slot(position);
    if (slot == Records::kNone) continue;
    const uint64_t hash = base::mix(static_cast<uint64_t>(records.id(slot)));
    const bool lies_beyond_the_end = index.home(hash) > position;
    if (hash >> (64 - kCursorBits) >= from && lies_beyond_the_end == (at >= capacity))
      found.emplace_back(hash >> (64 - kCursorBits), slot);
  }
  std::ranges::sort(found);
  return found;
}

base::Result<Scanned> KeyedShard::scan(int64_t cursor, size_t most, bool with_values) {
  if (cursor < 0 || cursor >> kCursorBits != 0 || most == 0)
    return base::error(MV_EINVAL, "table \"{}\": scan for {} rows from {}, which is not a cursor of this table",
                       spec_.name, most, cursor);
  Scanned out;
  auto from = static_cast<uint64_t>(cursor);
  for (size_t i = from >> (kCursorBits - part_bits_); i < parts_.size(); ++i) {
    Partition& part = *parts_[i];
    std::lock_guard lock(part.mutex);
    const size_t room = most - out.rows.size();
    const Found found = find_from(part.records, std::max<uint64_t>(from, i << (kCursorBits - part_bits_)), room);
    size_t count = std::min(found.size(), room);
    if (count < found.size())  // entries with one prefix stay together, because a cursor cannot separate them
      while (count > 0 && found[count - 1].first == found[count].first) --count;
    for (const auto& [prefix, slot] : std::span(found).first(count)) {
      out.rows.push_back(part.records.id(slot));
      if (!with_values) continue;
      out.values.resize(out.values.size() + spec_.row_bytes());
      math::load_bytes(spec_.dtype, part.records.values(slot),
                       out.values.data() + out.values.size() - spec_.row_bytes(), spec_.cols);
    }
    if (count == found.size()) continue;
    if (out.rows.empty())
      return base::error(MV_EINVAL,
                         "table \"{}\": the next keys can only be returned together: room for {} rows is not enough",
                         spec_.name, most);
    out.next = static_cast<int64_t>(found[count].first);
    return out;
  }
  return out;
}

}  // namespace mv::shard
