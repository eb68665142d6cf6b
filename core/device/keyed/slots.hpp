#pragma once
// The rows of a keyed table in the memory of a device.

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "device/keyed/index.hpp"
#include "device/packed_rows.hpp"

namespace mv::device {

/// Ids, values and states of rows, in slots. A kernel finds the slots of ids; the host numbers those of new
/// rows. Memory per row on the device: 13 to 19 bytes, values and states; on the host a bit, and 4 bytes for each erased row,
/// whose slot is used again. Of a table that does not fit on the device, rows that are used change places with rows on the
/// device that have not been used for longer. The owner locks. Functions throw DeviceFailure or std::bad_alloc.
class Slots {
 public:
  Slots(TensorDevice& device, const shard::Spec& spec);

  uint64_t size() const { return index_.size(); }
  size_t row_bytes() const { return row_bytes_; }
  const DeviceIndex& index() const { return index_; }
  const ChunkedRows& values() const { return values_; }
  const std::vector<ChunkedRows>& states() const { return states_; }
  std::vector<mv_device_rows> state_rows() const;
  const std::vector<bool>& is_used() const { return is_used_; }
  size_t bytes() const;
  size_t host_bytes() const;

  /// Replaces all states by `count` new ones, which are zeros. MV_ENOMEM: nothing has changed.
  base::Status set_states(size_t count);
  /// The slots of ids, or MV_DEVICE_NO_ROW; `misses` as in mv_device_lookup. All on the device. They are valid until the next find().
  uint64_t* find(Scratch& scratch, const int64_t* ids, uint64_t count, uint64_t* misses);
  /// Ids may repeat; unknown ones are ignored.
  void erase(std::span<const int64_t> ids);
  /// Writes the initial values of ids into the first rows of `out`.
  mv_device_initial initial(const mv_device_rows& out, const int64_t* ids, uint64_t count) const;

 private:
  friend class ReachedRows;
  // tiers.cpp
  struct Pairs;
  bool is_spilled() const { return is_on_host_anywhere([](const ChunkedRows& array) { return array.host_bytes() > 0; }); }
  bool is_on_host(uint64_t slot) const { return is_on_host_anywhere([slot](const ChunkedRows& array) { return array.is_on_host(slot); }); }
  template <typename Is>
  bool is_on_host_anywhere(const Is& is) const {
    return is(values_) || std::ranges::any_of(states_, is);
  }
  void note_use(Scratch& scratch, const uint64_t* slots, uint64_t count);
  bool should_balance() const;
  void balance();
  Pairs misplaced() const;
  void exchange(const Pairs& pairs);

  void make_room(uint64_t more);
  uint64_t take();
  void give_back(std::span<const uint64_t> slots);
  void erase_entries(const Stream& stream, const int64_t* ids, const uint64_t* slots, std::span<const uint64_t> host_slots);

  TensorDevice& device_;
  const shard::Spec& spec_;
  const mv_dtype stored_;   ///< the storage dtype
  const size_t row_bytes_;  ///< in it
  const uint64_t seed_;
  std::array<uint8_t, 8> initial_{};  ///< the value of all elements of new rows, unless they are random
  DeviceIndex index_;
  ChunkedRows values_;
  std::vector<ChunkedRows> states_;  ///< those of slots that are not used are zeros
  std::vector<bool> is_used_;        ///< by slot
  std::vector<uint32_t> free_;       ///< slots of erased rows
  // Of a table of which a part is on the host:
  ChunkedRows used_at_;     ///< by slot, the number of the find() that found it last
  uint32_t finds_ = 0;
  uint64_t found_ = 0;      ///< rows asked for since the last balance()
};

/// The rows of a call, each id once, with slots. Rows that are new are erased again unless keep() is called.
class ReachedRows {
 public:
  /// What new rows hold at first.
  enum class Fill { kInitial, kAnything };
  ReachedRows(Slots& slots, const Stream& stream, Scratch& scratch, std::span<const int64_t> ids, Fill fill);
  ~ReachedRows();
  ReachedRows(const ReachedRows&) = delete;
  ReachedRows& operator=(const ReachedRows&) = delete;

  PackedRows& packed() { return packed_; }
  void keep() { kept_ = true; }
  /// The slots, on the host.
  std::vector<uint64_t> slots() const;

 private:
  void make_missing(std::span<const int64_t> ids, Fill fill);

  Slots& slots_;
  PackedRows packed_;
  uint64_t* places_ = nullptr;  ///< packed_.rows
  bool kept_ = false, entered_ = false;
  // The new rows:
  const int64_t* new_ids_ = nullptr;
  const uint64_t* new_places_ = nullptr;
  std::vector<uint64_t> new_slots_;
};

}  // namespace mv::device
