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

namespace {

/// When a row was used, and its slot.
using Use = std::pair<uint32_t, uint64_t>;

/// The first `most` of all that are added, in the order of Before.
template <typename Before>
class First {
 public:
  explicit First(size_t most) : most_(most) { uses_.reserve(2 * most); }
  void add(const Use& use) {
    uses_.push_back(use);
    if (uses_.size() < 2 * most_) return;
    std::ranges::nth_element(uses_, uses_.begin() + static_cast<ptrdiff_t>(most_), Before());
    uses_.resize(most_);
  }
  std::vector<Use> sorted() && {
    std::ranges::sort(uses_, Before());
    uses_.resize(std::min(uses_.size(), most_));
    return std::move(uses_);
  }

 private:
  const size_t most_;
  std::vector<Use> uses_;
};

}  // namespace

/// New rows are in use.
void Slots::note_use(Scratch& scratch, const uint64_t* slots, uint64_t count) {
  const std::vector<uint32_t> now(count, finds_);
  const uint32_t* const there = must(scratch.of(std::span<const uint32_t>(now)));
  must(device_.current().launch(MV_DEVICE_PUT, mv_device_put{used_at_.rows(), there, slots, count, 1, MV_I32}));
}

/// After so many look-ups that to read all of used_at_ costs little beside them.
bool Slots::should_balance() const {
  constexpr uint64_t kLeast = 4096;
  return is_spilled() && found_ >= std::max<uint64_t>(kLeast, is_used_.size() / 4);
}

/// Without memory for it, rows stay where they are.
void Slots::balance() {
  found_ = 0;
  try {
    const Pairs pairs = misplaced();
    if (!pairs.here.empty()) exchange(pairs);
  } catch (const std::bad_alloc&) {
  } catch (const shard::DeviceFailure& failure) {
    if (failure.status().code() != MV_ENOMEM) throw;
  }
}

/// The rows on the host that were used last, each with one on the device that was not used for longer.
Slots::Pairs Slots::misplaced() const {
  constexpr size_t kMost = size_t{1} << 16, kMostBytes = size_t{16} << 20;
  const size_t most = std::clamp<size_t>(kMostBytes / row_bytes_, 1, kMost), slots = std::min<size_t>(is_used_.size(), used_at_.bytes() / sizeof(uint32_t));
  First<std::greater<>> hot(most);
  First<std::less<>> cold(most);
  std::vector<uint32_t> used_at(std::min<size_t>(used_at_.chunk_rows(), slots));
  for (size_t first = 0; first < slots; first += used_at.size()) {
    const size_t count = std::min(used_at.size(), slots - first);
    to_host(device_.current(), used_at.data(), used_at_.at(first), count * sizeof(uint32_t));
    for (size_t i = 0; i < count; ++i) {
      if (!is_used_[first + i]) continue;
      if (!is_on_host(first + i))
        cold.add({used_at[i], first + i});
      else if (used_at[i] > 0)
        hot.add({used_at[i], first + i});
    }
  }
  const std::vector<Use> here = std::move(hot).sorted(), there = std::move(cold).sorted();
  Pairs pairs;
  const size_t count = std::min<size_t>({here.size(), there.size(), index_.most_moves() / 2});
  for (size_t i = 0; i < count && here[i].first > there[i].first; ++i) {
    pairs.here.push_back(here[i].second);
    pairs.there.push_back(there[i].second);
  }
  return pairs;
}

/// All memory is there before the first row moves.
void Slots::exchange(const Pairs& pairs) {
  const Stream& stream = device_.current();
  Scratch scratch(stream);
  const uint64_t count = pairs.here.size();
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
  must(index_.clean(2 * count));
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
