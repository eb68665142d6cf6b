#pragma once
// A shard of a dense table in the memory of a device.

#include <array>
#include <cassert>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/model_shard.hpp"
#include "device/tensors.hpp"
#include "shard/on_device.hpp"

namespace mv::device {

/// Memory per element: the storage dtype's bytes, the same again for each state of the updater, and, if the updater keeps backups, for each
/// worker that gets from the table.
class DeviceShard final : public ModelShard, public std::enable_shared_from_this<DeviceShard> {
 public:
  /// @param mutex  of all shards on the device; it outlives them
  static base::Result<std::shared_ptr<shard::Shard>> make(shard::SpecRef spec, const shard::Position& place, TensorDevice& device, std::mutex& mutex);

  base::Status add_together(shard::Worker worker, std::span<const Addition> additions, const std::function<base::Status()>& before) override;
  base::Status read_together(shard::Worker worker, std::span<const Reading> readings) override;

  void change(shard::Write write, shard::Worker worker, uint64_t first, uint64_t count, const std::byte* values, shard::ChangePart piece) override;
  void read(shard::Worker worker, uint64_t first, uint64_t count, std::byte* out) override;
  base::Result<shard::Scanned> scan(int64_t cursor, size_t most, bool with_values) override;

  base::Status set_updater(const shard::UpdaterSpec& updater) override;
  shard::Usage usage() const override;

  base::Result<std::unique_ptr<shard::Snapshot>> snapshot(shard::Scope scope) override;
  base::Status restore(const shard::Restored& rows) override;
  base::Status restore_states(const shard::Restored& rows) override;
  void read_stored(uint64_t array, uint64_t first, uint64_t count, std::byte* out) override;
  uint64_t next_stored(uint64_t array) const override;

 private:
  using BlockRef = std::shared_ptr<tensor::Block>;
  using Work = device::Model::Work;
  /// What each worker last got, in the form of shard::Block::backup. Zeros at first.
  struct Backups {
    std::map<shard::Worker, BlockRef> of;
    size_t on_host = 0;  ///< bytes
  };
  struct Model : device::Model {
    std::vector<BlockRef> states;
    std::vector<void*> places;  ///< of the states
    size_t on_host = 0;         ///< bytes of the states
    std::shared_ptr<Backups> backups;
  };
  using ModelRef = std::shared_ptr<const Model>;
  /// A gradient on the device for a whole shard.
  struct Sum {
    const DeviceShard* shard;
    const void* gradient;
  };
  DeviceShard(shard::SpecRef spec, shard::Range rows, TensorDevice& device, std::mutex& mutex, TensorDevice::Spilled values, const shard::Position& place);
  base::Result<ModelRef> make_model(const shard::UpdaterSpec& updater) const;

  std::byte* at(const BlockRef& array, uint64_t element) const { return array->data() + element * stored_bytes_; }
  bool wants_whole() const { return model_->updater->sums() > 0; }
  Target target_of(const Model& model, shard::Worker worker, const shard::Step* step, uint64_t first, uint64_t count, const void* gradient) const;
  /// Adds `gradient`, elements of the table's dtype on this device.
  void add(const Stream& stream, shard::Worker worker, const shard::Step* step, uint64_t first, uint64_t count, const void* gradient) const;
  /// From this element on; null: the worker has none.
  void* backup(const Model& model, shard::Worker worker, uint64_t first) const;
  const BlockRef& make_backup(shard::Worker worker) const;
  void back_up(const Stream& stream, shard::Worker worker, uint64_t first, uint64_t count) const;
  void back_up_rows(const Stream& stream, Scratch& scratch, shard::Worker worker, std::span<const int64_t> rows) override;
  /// The array of read_stored(), or null.
  const tensor::Block* stored(uint64_t array) const;
  void list_add(WorkList& work, uint64_t first, uint64_t count, const void* gradient) const;
  /// Shards that have one formula.
  struct Batch {
    std::vector<Sum> sums;
    std::vector<shard::Mark> marks = {};  ///< before they were counted
    std::optional<Update> update = {};    ///< none: they add or copy
  };
  static void prepare(const Stream& stream, shard::Worker worker, Batch& batch);
  static void uncount(const Batch& batch);
  PackedRows packed(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows) const;
  void add_rows(shard::Worker worker, std::span<const int64_t> rows, shard::ChangePart piece, const Values& values) override;
  void set_rows(std::span<const int64_t> rows, const std::byte* values) override;
  void erase_rows(std::span<const int64_t>) override { assert(false); }
  void read_to(const Stream& stream, Scratch& scratch, std::span<const int64_t> rows, void* out) override;
  void add_packed(const PackedRows& packed, shard::Worker worker, const shard::Step* step, std::span<const int64_t> rows, bool clears);
  void clear(const Stream& stream) const;
  bool is_updated_with(const DeviceShard& other) const;
  bool rounds_for(std::span<const tensor::Tensor> outs) const;
  /// @param values  the array that gets the values, or null
  void restore_arrays(const shard::Restored& rows, const BlockRef& values);

  const device::Model* model() const override { return model_.get(); }

  const size_t stored_bytes_;
  const std::shared_ptr<shard::Families> families_;
  const BlockRef values_;
  const size_t values_on_host_;  ///< bytes
  ModelRef model_;
};

/// Makes the shards of tables on the devices of this process.
class TableDevices final : public shard::DeviceShards {
 public:
  explicit TableDevices(TensorDevices& devices) : devices_(devices) {}
  base::Result<std::shared_ptr<shard::Shard>> make(shard::SpecRef spec, const shard::Position& place) override;
  base::Status check(const shard::UpdaterSpec& updater) const override { return check_updater(updater, false); }

 private:
  TensorDevices& devices_;
  std::array<std::mutex, TensorDevices::kMost> mutexes_;
};

}  // namespace mv::device
