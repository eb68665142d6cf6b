// Scans the rows of a keyed shard.

#include <algorithm>
#include <utility>

#include "math/kernels.hpp"
#include "shard/keyed/keyed.hpp"
#include "shard/keyed/scan_order.hpp"
#include "shard/updater/apply.hpp"

namespace mv::shard {

namespace {

/// The index of a partition, for find_from().
struct PartitionIndex {
  const Records& records;
  size_t capacity() const { return records.index().capacity(); }
  size_t home(uint64_t hash) const { return records.index().home(hash); }
  IndexEntry entry(size_t position) const {
    const Index& index = records.index();
    const uint32_t slot = index.slot(position);
    const bool is_used = slot != Records::kNone;
    return {index.is_empty(position), is_used, slot, is_used ? records.id(slot) : 0};
  }
};

}  // namespace

/// take(records, slot, result) for each row, under the lock of its partition.
template <typename Take>
base::Result<Scanned> KeyedShard::scan_by(int64_t cursor, size_t most, const Take& take) {
  if (auto status = check_cursor(spec_, cursor, most); !status.ok()) return status;
  Scanned out;
  auto from = static_cast<uint64_t>(cursor);
  for (size_t i = from >> (kCursorBits - part_bits_); i < parts_.size(); ++i) {
    Partition& part = *parts_[i];
    std::lock_guard lock(part.mutex);
    const size_t room = most - out.rows.size();
    const Found found = find_from(PartitionIndex{part.records}, std::max<uint64_t>(from, i << (kCursorBits - part_bits_)), room);
    const size_t count = count_together(found, room);
    for (const FoundRow& row : std::span(found).first(count)) {
      out.rows.push_back(row.id);
      take(part.records, row.slot, out);
    }
    if (count == found.size()) continue;
    if (out.rows.empty()) return no_room_for_next(spec_, most);
    out.next = cursor_at(found[count].hash);
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
