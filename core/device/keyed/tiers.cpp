// Slots: rows of a table that does not fit on the device change places, so that those in use are there.

#include <algorithm>
#include <functional>
#include <utility>

#include "device/keyed/slots.hpp"
#include "device/must.hpp"

namespace mv::device {

/// Rows on the host, and those on the device with which they change places.
struct Slots::Pairs {
  std::vector<uint64_t> here, there;
};

/// After so many look-ups that to read all of used_at_ costs little beside them.
bool Slots::should_balance() const {
  constexpr uint64_t kLeast = 4096;
  return values_.host_bytes() > 0 && found_ >= std::max<uint64_t>(kLeast, is_used_.size() / 4);
}

void Slots::balance() {
  found_ = 0;
  const auto status = status_of([&] {
    const Pairs pairs = misplaced();
    if (!pairs.here.empty()) exchange(pairs);
  });
  if (status.code() != MV_ENOMEM) must(status);  // without memory for it, rows stay where they are
}

/// The rows on the host that were used last, each with one on the device that was not used for longer.
Slots::Pairs Slots::misplaced() const {
  constexpr size_t kMostBytes = size_t{16} << 20;
  const size_t slots = std::min<size_t>(is_used_.size(), used_at_.chunks() * used_at_.chunk_rows());
  std::vector<uint32_t> used_at(slots);
  for (size_t first = 0; first < slots; first += used_at_.chunk_rows())
    to_host(device_.current(), &used_at[first], used_at_.at(first), std::min<size_t>(used_at_.chunk_rows(), slots - first) * sizeof(uint32_t));
  using Use = std::pair<uint32_t, uint64_t>;
  std::vector<Use> hot, cold;
  for (size_t slot = 0; slot < slots; ++slot) {
    if (!is_used_[slot]) continue;
    if (!values_.is_on_host(slot))
      cold.emplace_back(used_at[slot], slot);
    else if (used_at[slot] > 0)
      hot.emplace_back(used_at[slot], slot);
  }
  const size_t most = std::min({hot.size(), cold.size(), std::max<size_t>(1, kMostBytes / row_bytes_)});
  std::ranges::partial_sort(hot, hot.begin() + static_cast<ptrdiff_t>(most), std::greater());
  std::ranges::partial_sort(cold, cold.begin() + static_cast<ptrdiff_t>(most));
  Pairs pairs;
  for (size_t i = 0; i < most && hot[i].first > cold[i].first; ++i) {
    pairs.here.push_back(hot[i].second);
    pairs.there.push_back(cold[i].second);
  }
  return pairs;
}

/// All memory is there before the first row moves.
void Slots::exchange(const Pairs& pairs) {
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  const uint64_t count = pairs.here.size();
  must(index_.reserve(2 * count, is_used_.size()));
  struct Side {
    const uint64_t* slots;
    int64_t* ids;
    void* rows;
  };
  const auto side = [&](const std::vector<uint64_t>& slots) {
    return Side{must(scratch.of(std::span<const uint64_t>(slots))), static_cast<int64_t*>(must(scratch.make(count * sizeof(int64_t)))),
                must(scratch.make(count * std::max(row_bytes_, sizeof(uint32_t))))};
  };
  const Side here = side(pairs.here), there = side(pairs.there);
  const auto take = [&](const Side& from, const mv_device_rows& array, void* to, uint64_t width, mv_dtype dtype) {
    must(stream.launch(MV_DEVICE_TAKE, mv_device_take{to, array, from.slots, nullptr, count, width, dtype}));
  };
  const auto swap_rows = [&](const mv_device_rows& array, uint64_t width, mv_dtype dtype) {
    for (const Side& one : {here, there}) take(one, array, one.rows, width, dtype);
    must(stream.launch(MV_DEVICE_PUT, mv_device_put{array, there.rows, here.slots, count, width, dtype}));
    must(stream.launch(MV_DEVICE_PUT, mv_device_put{array, here.rows, there.slots, count, width, dtype}));
  };
  for (const Side& one : {here, there}) take(one, index_.ids().rows(), one.ids, 1, MV_I64);
  swap_rows(values_.rows(), spec_.cols, stored_);
  for (const ChunkedRows& state : states_) swap_rows(state.rows(), spec_.cols, stored_);
  swap_rows(used_at_.rows(), 1, MV_I32);
  for (const Side& one : {here, there}) must(index_.erase(one.ids, one.slots, count));
  must(index_.insert(here.ids, there.slots, count));
  must(index_.insert(there.ids, here.slots, count));
}

}  // namespace mv::device
