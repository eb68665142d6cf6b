#pragma once
// A shard of a sparse or key-value table in the memory of a device.

#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/keyed/index.hpp"
#include "device/model_shard.hpp"

namespace mv::device {

/// Rows are in slots, which never move; erased ones are used again. Ids come from the host. A kernel finds their slots; the host
/// numbers the slots of new rows. Memory per row on the device: 13 to 19 bytes, values and states; a bit and 4 bytes for each
/// erased row on the host.
class KeyedDeviceShard final : public ModelShard, public std::enable_shared_from_this<KeyedDeviceShard> {
 public:
  /// @param mutex  of all shards on the device; it outlives them
  static base::Result<std::shared_ptr<shard::Shard>> make(shard::SpecRef spec, const shard::Position& place, TensorDevice& device, std::mutex& mutex);

  base::Status add_held(shard::Worker worker, const tensor::Tensor& rows) override;
  base::Status read_held(shard::Worker worker, const tensor::Tensor& rows) override;
  // A keyed table has no "all elements".
  base::Status add_together(shard::Worker worker, std::span<const Addition> additions, const std::function<base::Status()>& before) override;
  base::Status read_into(shard::Worker worker, std::span<const tensor::Tensor> outs) override;
  void change(shard::Write write, shard::Worker worker, uint64_t first, uint64_t count, const std::byte* values, shard::ChangePart piece) override;
  void read(shard::Worker worker, uint64_t first, uint64_t count, std::byte* out) override;

  void change_rows(shard::Write write, shard::Worker worker, std::span<const int64_t> rows, const std::byte* values, shard::ChangePart piece) override;
  void read_rows(shard::Worker worker, std::span<const int64_t> rows, std::byte* out) override;
  base::Result<shard::Scanned> scan(int64_t cursor, size_t most, bool with_values) override;
  base::Result<shard::Scanned> scan_stored(int64_t cursor, size_t most) override;
  size_t stored_row_bytes() const override;

  base::Status set_updater(const shard::UpdaterSpec& updater) override;
  shard::Usage usage() const override;

  base::Result<std::unique_ptr<shard::Snapshot>> snapshot(shard::Scope scope) override;
  base::Status restore(const shard::Restored& rows) override;
  base::Status restore_states(const shard::Restored& rows) override;

 private:
  using ModelRef = std::shared_ptr<const Model>;
  /// What new rows hold before they are changed.
  enum class Fill { kInitial, kAnything };
  /// The rows of a call and their slots, on the device. Their new slots are given back unless keep() is called.
  class Reached;

  KeyedDeviceShard(shard::SpecRef spec, const shard::Position& place, TensorDevice& device, std::mutex& mutex);

  /// The slots of ids, on the device.
  uint64_t* find(Scratch& scratch, const int64_t* ids, uint64_t count, uint64_t* misses) const;
  void make_room(uint64_t more);
  uint64_t take_slot();
  void erase(std::span<const int64_t> rows);
  void free_slots(std::span<const uint64_t> slots);
  void erase_slots(const Stream& stream, const int64_t* ids, const uint64_t* slots, std::span<const uint64_t> host_slots);
  /// Writes initial values of these ids into the first rows of `out`.
  mv_device_initial initial(const mv_device_rows& out, const int64_t* ids, uint64_t count) const;
  void add(Reached& reached, std::span<const int64_t> rows, const shard::Step* step);
  void add_rows(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows, const void* values, shard::ChangePart piece);
  void restore_rows(const shard::Restored& rows);
  /// The rows' values, of the table's dtype, on the device.
  void read_to(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows, void* out) const;
  template <typename Take>
  base::Result<shard::Scanned> scan_by(int64_t cursor, size_t most, const Take& take);
  /// Appends rows of an array, of the storage dtype.
  void append(const ChunkedRows& array, std::span<const uint64_t> slots, std::vector<std::byte>& to) const;
  std::vector<mv_device_rows> states() const;

  const Model* model() const override { return model_.get(); }

  const size_t servers_, server_;
  const size_t stored_bytes_;  ///< of a row
  const unsigned shift_;       ///< of the chunks of values and states
  const uint64_t seed_;
  std::array<uint8_t, 8> initial_{};  ///< the value of all elements of new rows, unless they are random
  ModelRef model_;
  DeviceIndex index_;
  ChunkedRows values_;
  std::vector<ChunkedRows> states_;  ///< those of rows that are not used are zeros
  std::vector<bool> is_used_;        ///< by slot
  std::vector<uint32_t> free_;       ///< slots of erased rows
};

}  // namespace mv::device
