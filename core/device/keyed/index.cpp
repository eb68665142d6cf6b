#include "device/keyed/index.hpp"

#include "device/scratch.hpp"

namespace mv::device {

namespace {

constexpr unsigned kLeastBits = 10;

/// The most words that are not empty: a search ends at an empty one, and slows down long before there are none.
uint64_t most_of(unsigned bits) { return (uint64_t{1} << bits) / 4 * 3; }

}  // namespace

base::Status DeviceIndex::reserve(uint64_t more, uint64_t rows) {
  if (auto status = ids_.reach(rows); !status.ok()) return status;
  if (words_ != nullptr && used_ + erased_ + more <= most_of(bits_)) return {};
  unsigned bits = words_ != nullptr ? bits_ : kLeastBits;
  // With erased entries the same size may do, unless the next insertions soon needed another one.
  while (bits < kMostBits && used_ + more > most_of(bits) / 4 * 3) ++bits;
  if (used_ + more > most_of(bits)) return base::error(MV_ENOMEM, "the index of a table on a device has at most {} rows on each server: use more servers", most_of(kMostBits));
  return rebuild(bits);
}

base::Status DeviceIndex::rebuild(unsigned bits) {
  auto words = device_.allocate_or_spill(sizeof(uint32_t) << bits, TensorDevice::Spill::kWhole);
  if (!words.ok()) return words.status();
  const mv_device_index next{reinterpret_cast<uint32_t*>(words.value().block->data()), bits, ids_.rows()};
  if (used_ > 0)
    if (auto status = device_.current().launch(MV_DEVICE_REINDEX, mv_device_reindex{next, place().words, bits_}); !status.ok()) return status;
  words_ = std::move(words.value().block);
  words_on_host_ = words.value().on_host;
  bits_ = bits;
  erased_ = 0;
  return {};
}

base::Status DeviceIndex::find(const int64_t* ids, uint64_t count, uint64_t* rows, uint64_t* misses, const mv_device_rows& used_at,
                               uint32_t now) const {
  const Stream& stream = device_.current();
  if (words_ != nullptr) return stream.launch(MV_DEVICE_LOOKUP, mv_device_lookup{place(), ids, rows, misses, count, used_at, now, 0});
  if (misses != nullptr)
    if (auto status = stream.launch(MV_DEVICE_FILL, mv_device_fill{.out = misses, .count = 1, .value = {1}, .dtype = MV_I64}); !status.ok()) return status;
  return stream.launch(MV_DEVICE_FILL, mv_device_fill{.out = rows, .count = count * sizeof *rows, .value = {0xff}, .dtype = MV_U8});
}

base::Status DeviceIndex::insert(const int64_t* ids, const uint64_t* rows, uint64_t count) {
  if (auto status = device_.current().launch(MV_DEVICE_INSERT, mv_device_insert{place(), ids, rows, count}); !status.ok()) return status;
  used_ += count;  // they may have taken the places of erased ones: these are counted until the index is rebuilt
  return {};
}

base::Status DeviceIndex::erase(const int64_t* ids, const uint64_t* rows, uint64_t count) {
  if (auto status = device_.current().launch(MV_DEVICE_ERASE, mv_device_erase{place(), ids, rows, count}); !status.ok()) return status;
  used_ -= count;
  erased_ += count;
  return {};
}

base::Status DeviceIndex::clean(uint64_t moves) {
  return used_ + erased_ + moves <= capacity() / 8 * 7 ? base::Status() : rebuild(bits_);
}

base::Result<std::vector<shard::IndexEntry>> DeviceIndex::entries(size_t first, size_t count) const {
  const Stream& stream = device_.current();
  std::vector<uint32_t> words(count);
  if (auto status = device_.to_host(words.data(), place().words + first, count * sizeof(uint32_t)); !status.ok()) return status;
  std::vector<shard::IndexEntry> entries;
  std::vector<uint64_t> slots;
  for (const uint32_t word : words) {
    const bool is_used = word != MV_DEVICE_EMPTY_WORD && word != MV_DEVICE_ERASED_WORD;
    const uint32_t slot = is_used ? (word & ((uint32_t{1} << bits_) - 1)) - 1 : 0;
    entries.push_back({word == MV_DEVICE_EMPTY_WORD, is_used, slot, 0});
    if (is_used) slots.push_back(slot);
  }
  if (slots.empty()) return entries;
  Scratch scratch(stream);
  const auto places = scratch.of(std::span<const uint64_t>(slots));
  if (!places.ok()) return places.status();
  const auto out = scratch.make(slots.size() * sizeof(int64_t));
  if (!out.ok()) return out.status();
  const mv_device_take work{out.value(), ids_.rows(), places.value(), nullptr, slots.size(), 1, MV_I64};
  if (auto status = stream.launch(MV_DEVICE_TAKE, work); !status.ok()) return status;
  std::vector<int64_t> ids(slots.size());
  if (auto status = device_.to_host(ids.data(), out.value(), ids.size() * sizeof(int64_t)); !status.ok()) return status;
  size_t next = 0;
  for (shard::IndexEntry& entry : entries)
    if (entry.is_used) entry.id = ids[next++];
  return entries;
}

}  // namespace mv::device
