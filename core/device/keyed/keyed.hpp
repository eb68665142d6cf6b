#pragma once
// A shard of a sparse or key-value table in the memory of a device.

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/keyed/slots.hpp"
#include "device/model_shard.hpp"

namespace mv::device {

/// Ids come from the host, values from the host or the device.
class KeyedDeviceShard final : public ModelShard, public std::enable_shared_from_this<KeyedDeviceShard> {
 public:
  /// @param mutex  of all shards on the device; it outlives them
  static base::Result<std::shared_ptr<shard::Shard>> make(shard::SpecRef spec, const shard::Position& place, TensorDevice& device, std::mutex& mutex);

  // A keyed table has no "all elements".
  base::Status add_together(shard::Worker worker, std::span<const Addition> additions, const std::function<base::Status()>& before) override;
  base::Status read_together(shard::Worker worker, std::span<const Reading> readings) override;
  void change(shard::Write write, shard::Worker worker, uint64_t first, uint64_t count, const std::byte* values, shard::ChangePart piece) override;
  void read(shard::Worker worker, uint64_t first, uint64_t count, std::byte* out) override;

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
  KeyedDeviceShard(shard::SpecRef spec, const shard::Position& place, TensorDevice& device, std::mutex& mutex);

  void add(ReachedRows& reached, std::span<const int64_t> rows, const shard::Step* step);
  void add_rows(shard::Worker worker, std::span<const int64_t> rows, shard::ChangePart piece, const Values& values) override;
  void set_rows(std::span<const int64_t> rows, const std::byte* values) override;
  void erase_rows(std::span<const int64_t> rows) override { slots_.erase(rows); }
  void restore_rows(const shard::Restored& rows);
  void read_to(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows, void* out) override;
  template <typename Take>
  base::Result<shard::Scanned> scan_by(int64_t cursor, size_t most, const Take& take);
  /// Appends rows of an array, of the storage dtype.
  void append(const ChunkedRows& array, std::span<const uint64_t> slots, std::vector<std::byte>& to) const;
  const Model* model() const override { return model_.get(); }

  const size_t servers_, server_;
  ModelRef model_;
  Slots slots_;
};

}  // namespace mv::device
