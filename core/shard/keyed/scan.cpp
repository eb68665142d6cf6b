// Scans the rows of a keyed shard in the order of the hashes of their ids, which does not change when the shard grows.
// A cursor is the upper 40 bits of a hash.

#include <algorithm>
#include <utility>

#include "base/mix.hpp"
#include "math/kernels.hpp"
#include "shard/keyed/keyed.hpp"
#include "shard/updater/apply.hpp"

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

/// take(records, slot, result) for each row, under the lock of its partition.
template <typename Take>
base::Result<Scanned> KeyedShard::scan_by(int64_t cursor, size_t most, const Take& take) {
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
      take(part.records, slot, out);
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

base::Result<Scanned> KeyedShard::scan(int64_t cursor, size_t most, bool with_values) {
  return scan_by(cursor, most, [&](const Records& records, uint32_t slot, Scanned& out) {
    if (!with_values) return;
    out.values.resize(out.values.size() + spec_.row_bytes());
    math::load_bytes(spec_.dtype, records.values(slot), out.values.data() + out.values.size() - spec_.row_bytes(), spec_.cols);
  });
}

// ------------------------------------------------------------ all that is stored

/// Only the workers that got the row count: a worker that has not has zeros, or no memory for the row, or none at all.
void KeyedShard::take_stored(const Records& records, uint32_t slot, Scanned& out) const {
  const size_t row_bytes = records.layout().row_bytes;
  const auto append = [](std::vector<std::byte>& to, const void* from, size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(from);
    to.insert(to.end(), begin, begin + bytes);
  };
  append(out.values, records.values(slot), row_bytes);
  for (size_t i = 0; i < records.layout().states; ++i) append(out.beside, records.state(slot, i), row_bytes);
  records.for_each_worker([&](Worker worker, const auto& backup, const AbsentRows&) {
    const std::byte* const got = backup(slot);
    if (got == nullptr || is_zero({got, row_bytes})) return;
    append(out.beside, &worker, sizeof(worker));
    append(out.beside, got, row_bytes);
  });
}

base::Result<Scanned> KeyedShard::scan_stored(int64_t cursor, size_t most) {
  return scan_by(cursor, most, [this](const Records& records, uint32_t slot, Scanned& out) { take_stored(records, slot, out); });
}

size_t KeyedShard::stored_row_bytes() const {
  size_t arrays = 0;
  for (const auto& part : parts_) {
    std::lock_guard lock(part->mutex);
    arrays = std::max(arrays, 1 + part->records.layout().states + part->records.workers());
  }
  return arrays * spec_.cols * stored_bytes_;
}

}  // namespace mv::shard
