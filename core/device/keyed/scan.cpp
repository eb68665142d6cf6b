// KeyedDeviceShard: scans, snapshots, and what is restored from them.

#include <algorithm>
#include <utility>

#include "device/keyed/keyed.hpp"
#include "device/must.hpp"
#include "math/kernels.hpp"

namespace mv::device {

namespace {

/// The index, for shard::find_from(), read from the device in pieces.
class ReadIndex {
 public:
  /// @param most  rows that are wanted
  ReadIndex(const DeviceIndex& index, size_t most) : index_(index), piece_(std::clamp<size_t>(2 * most, 256, 16384)) {}
  size_t capacity() const { return index_.capacity(); }
  size_t home(uint64_t hash) const { return index_.home(hash); }
  const shard::IndexEntry& entry(size_t position) const {
    if (position < first_ || position >= first_ + read_.size()) {
      read_ = must(index_.entries(position, std::min(piece_, capacity() - position)));
      first_ = position;
    }
    return read_[position - first_];
  }

 private:
  const DeviceIndex& index_;
  const size_t piece_;
  mutable std::vector<shard::IndexEntry> read_;
  mutable size_t first_ = 0;
};

/// Copies of all arrays, made at once, chunk by chunk: on the device, or on the host if the device has no memory for them.
class KeyedDeviceSnapshot final : public shard::Snapshot {
 public:
  using Copy = std::vector<std::shared_ptr<tensor::Block>>;  ///< of an array's chunks
  struct Array {
    Copy chunks;
    size_t row_bytes;
    uint64_t chunk_rows;
  };
  /// @param arrays  ids, values, states
  KeyedDeviceSnapshot(std::vector<Array> arrays, std::vector<bool> is_used, uint64_t rows)
      : arrays_(std::move(arrays)), is_used_(std::move(is_used)), rows_(rows), out_(arrays_.size()) {}

  uint64_t rows() const override { return rows_; }
  size_t states() const override { return arrays_.size() - 2; }
  shard::Rows next() override;

 private:
  void read(size_t array, uint64_t first, uint64_t count);

  const std::vector<Array> arrays_;
  const std::vector<bool> is_used_;
  const uint64_t rows_;
  std::vector<std::vector<std::byte>> out_;  ///< one for each array: the rows of next()
  uint64_t slot_ = 0;                        ///< the next one
};

/// The used ones of `count` slots, which are of one chunk of the array.
void KeyedDeviceSnapshot::read(size_t array, uint64_t first, uint64_t count) {
  const auto& [chunks, row_bytes, chunk_rows] = arrays_[array];
  const tensor::Block& chunk = *chunks[first / chunk_rows];
  std::vector<std::byte>& out = out_[array];
  out.resize(count * row_bytes);
  const std::byte* const from = chunk.data() + first % chunk_rows * row_bytes;
  if (chunk.device() == nullptr)
    std::copy_n(from, out.size(), out.data());
  else
    must(chunk.device()->to_host(out.data(), from, out.size()));
  size_t kept = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (!is_used_[first + i]) continue;
    std::copy_n(&out[i * row_bytes], row_bytes, &out[kept]);
    kept += row_bytes;
  }
  out.resize(kept);
}

shard::Rows KeyedDeviceSnapshot::next() {
  constexpr uint64_t kMostBytes = 256 << 10;
  shard::Rows some;
  while (slot_ < is_used_.size() && some.count == 0) {
    uint64_t count = std::min(std::max<uint64_t>(1, kMostBytes / arrays_[1].row_bytes), is_used_.size() - slot_);
    for (const Array& array : arrays_) count = std::min(count, array.chunk_rows - slot_ % array.chunk_rows);
    for (size_t i = 0; i < arrays_.size(); ++i) read(i, slot_, count);
    some.count = out_.front().size() / sizeof(int64_t);
    slot_ += count;
  }
  if (some.count == 0) return some;
  const auto* const ids = reinterpret_cast<const int64_t*>(out_.front().data());
  some.ids.assign(ids, ids + some.count);
  some.values = out_[1];
  for (size_t i = 2; i < out_.size(); ++i) some.states.emplace_back(out_[i]);
  return some;
}

base::Result<KeyedDeviceSnapshot::Array> copy_of(TensorDevice& device, const ChunkedRows& rows, size_t row_bytes) {
  KeyedDeviceSnapshot::Array array{{}, row_bytes, rows.chunk_rows()};
  for (size_t i = 0; i < rows.chunks(); ++i) {
    auto copy = device.copy_of(rows.at(i * rows.chunk_rows()), rows.chunk_bytes());
    if (!copy.ok()) return copy.status();
    array.chunks.push_back(std::move(copy).value());
  }
  return array;
}

}  // namespace

// ------------------------------------------------------------ scans

void KeyedDeviceShard::append(const ChunkedRows& array, std::span<const uint64_t> slots, std::vector<std::byte>& to) const {
  if (slots.empty()) return;
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  const PackedRows packed{stream, scratch, spec_, slots.size(), must(scratch.of(slots))};
  const void* const taken = packed.take(array.rows());
  to.resize(slots.size() * slots_.row_bytes());
  to_host(stream, to.data(), taken, to.size());
}

/// take(slots, result) for the rows of a scan, with the mutex locked.
template <typename Take>
base::Result<shard::Scanned> KeyedDeviceShard::scan_by(int64_t cursor, size_t most, const Take& take) {
  if (auto status = shard::check_cursor(spec_, cursor, most); !status.ok()) return status;
  const std::lock_guard lock(mutex_);
  shard::Scanned out;
  auto status = status_of([&] {
    const ReadIndex index(slots_.index(), most);
    const shard::Found found = shard::find_from(index, static_cast<uint64_t>(cursor), most);
    const size_t count = shard::count_together(found, most);
    if (count == 0 && !found.empty()) must(shard::no_room_for_next(spec_, most));
    std::vector<uint64_t> slots;
    for (const shard::FoundRow& row : std::span(found).first(count)) {
      slots.push_back(row.slot);
      out.rows.push_back(row.id);
    }
    if (count < found.size()) out.next = shard::cursor_at(found[count].hash);
    take(slots, out);
  });
  if (!status.ok()) return status;
  return out;
}

base::Result<shard::Scanned> KeyedDeviceShard::scan(int64_t cursor, size_t most, bool with_values) {
  return scan_by(cursor, most, [&](std::span<const uint64_t> slots, shard::Scanned& out) {
    if (!with_values) return;
    std::vector<std::byte> stored;
    append(slots_.values(), slots, stored);
    out.values.resize(slots.size() * spec_.row_bytes());
    math::load_bytes(spec_.dtype, stored.data(), out.values.data(), slots.size() * spec_.cols);
  });
}

base::Result<shard::Scanned> KeyedDeviceShard::scan_stored(int64_t cursor, size_t most) {
  return scan_by(cursor, most, [&](std::span<const uint64_t> slots, shard::Scanned& out) {
    append(slots_.values(), slots, out.values);
    std::vector<std::vector<std::byte>> states(slots_.states().size());
    for (size_t i = 0; i < states.size(); ++i) append(slots_.states()[i], slots, states[i]);
    for (size_t row = 0; row < slots.size(); ++row)
      for (const auto& state : states) out.beside.insert(out.beside.end(), &state[row * slots_.row_bytes()], &state[row * slots_.row_bytes()] + slots_.row_bytes());
  });
}

size_t KeyedDeviceShard::stored_row_bytes() const {
  const std::lock_guard lock(mutex_);
  return (1 + slots_.states().size()) * slots_.row_bytes();
}

// ------------------------------------------------------------ snapshots

base::Result<std::unique_ptr<shard::Snapshot>> KeyedDeviceShard::snapshot(shard::Scope) {
  const std::lock_guard lock(mutex_);
  std::vector<KeyedDeviceSnapshot::Array> arrays;
  const auto copy = [&](const ChunkedRows& rows, size_t row_bytes) {
    auto made = copy_of(device_, rows, row_bytes);
    if (!made.ok()) return made.status();
    arrays.push_back(std::move(made).value());
    return base::Status();
  };
  auto status = copy(slots_.index().ids(), sizeof(int64_t));
  if (status.ok()) status = copy(slots_.values(), slots_.row_bytes());
  for (size_t i = 0; status.ok() && i < slots_.states().size(); ++i) status = copy(slots_.states()[i], slots_.row_bytes());
  if (!status.ok()) return base::error(status.code(), "saving table \"{}\": {}", spec_.name, status.text());
  return std::unique_ptr<shard::Snapshot>(std::make_unique<KeyedDeviceSnapshot>(std::move(arrays), slots_.is_used(), slots_.size()));
}

base::Status KeyedDeviceShard::restore_states(const shard::Restored&) {
  return base::error(MV_ENOSYS, "table \"{}\" is {}: its states are restored with its rows", spec_.name, spec_.describe());
}

base::Status KeyedDeviceShard::restore(const shard::Restored& rows) {
  if (rows.content != shard::Content::kValues) return base::error(MV_EINVAL, "table \"{}\": its updater does not keep what workers got", spec_.name);
  const size_t bytes = rows.ids.size() * slots_.row_bytes();
  if (rows.values.size() != bytes || !std::ranges::all_of(rows.states, [&](auto state) { return state.size() == bytes; }))
    return base::error(MV_EINVAL, "table \"{}\": {} bytes of values for {} rows", spec_.name, rows.values.size(), rows.ids.size());
  const std::lock_guard lock(mutex_);
  return status_of([&] { restore_rows(rows); });
}

}  // namespace mv::device
