#pragma once
// What shards of all kinds in the memory of a device have in common: the updater in use.

#include <mutex>

#include "device/packed_rows.hpp"
#include "device/tensors.hpp"

namespace mv::device {

class ModelShard : public shard::OnDevice {
 public:
  shard::OnDevice* on_device() override { return this; }
  tensor::Device& device() const override { return device_; }
  shard::UpdaterSpec updater() const override;
  shard::Mark mark() const override;
  void set_mark(const shard::Mark& mark) override;
  shard::WithinAdd within_add() const override;
  void set_within_add(const shard::WithinAdd& progress) override;

 protected:
  /// @param mutex  of all shards on the device; it outlives them
  ModelShard(shard::SpecRef spec, shard::Range rows, TensorDevice& device, std::mutex& mutex)
      : OnDevice(std::move(spec), rows), device_(device), stored_(tensor::storage_dtype(spec_.dtype)), mutex_(mutex) {}
  /// Requires the mutex. Null before the first set_updater().
  virtual const Model* model() const = 0;

  TensorDevice& device_;
  const mv_dtype stored_;  ///< the storage dtype
  std::mutex& mutex_;      ///< guards the members of the derived classes, and keeps the launches of one call together
};

}  // namespace mv::device
