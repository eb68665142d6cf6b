#pragma once
// What shards of all kinds in the memory of a device have in common: the updater in use, and calls on rows, in pieces.

#include <functional>
#include <mutex>

#include "device/packed_rows.hpp"
#include "device/tensors.hpp"

namespace mv::device {

class ModelShard : public shard::OnDevice {
 public:
  shard::OnDevice* on_device() override { return this; }
  tensor::Device& device() const override { return device_; }

  void change_rows(shard::Write write, shard::Worker worker, std::span<const int64_t> rows, const std::byte* values, shard::ChangePart piece) override;
  base::Status add_held(shard::Worker worker, const tensor::Tensor& rows) override;
  void read_rows(shard::Worker worker, std::span<const int64_t> rows, std::byte* out) override;
  base::Status read_held(shard::Worker worker, const tensor::Tensor& rows) override;

 protected:
  /// The values of `count` rows of a call from `first` on, of the table's dtype, on the device.
  using Values = std::function<const void*(Scratch& scratch, uint64_t first, uint64_t count)>;
  /// @param mutex  of all shards on the device; it outlives them
  ModelShard(shard::SpecRef spec, shard::Range rows, TensorDevice& device, std::mutex& mutex)
      : OnDevice(std::move(spec), rows), device_(device), stored_(tensor::storage_dtype(spec_.dtype)), mutex_(mutex) {}
  /// Requires the mutex. Null before the first set_updater().
  virtual const Model* model() const = 0;
  void with_updater(const UseUpdater& use) const override;
  // Require the mutex.
  virtual void add_rows(shard::Worker worker, std::span<const int64_t> rows, shard::ChangePart piece, const Values& values) = 0;
  void add_rows_of(shard::Worker worker, const tensor::Tensor& rows);
  /// Each row once.
  virtual void set_rows(std::span<const int64_t> rows, const std::byte* values) = 0;
  virtual void erase_rows(std::span<const int64_t> rows) = 0;
  /// Writes the rows' values, of the table's dtype, to the device.
  virtual void read_to(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows, void* out) = 0;
  /// The worker gets the rows.
  virtual void back_up_rows(const Stream& /*stream*/, Scratch& /*scratch*/, shard::Worker /*worker*/, std::span<const int64_t> /*rows*/) {}

  /// A copy on the device of some rows' values.
  const void* copied(Scratch& scratch, const std::byte* values, uint64_t first, uint64_t count) const;

  TensorDevice& device_;
  const mv_dtype stored_;  ///< the storage dtype
  std::mutex& mutex_;      ///< guards the members of the derived classes, and keeps the launches of one call together
};

}  // namespace mv::device
