#pragma once
// A shard of a dense table in the memory of a device.

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/undo.hpp"
#include "device/operations.hpp"
#include "device/scratch.hpp"
#include "device/tensors.hpp"
#include "shard/on_device.hpp"

namespace mv::device {

/// Memory per element: the storage dtype's bytes, and the same again for each state of the updater.
class DeviceShard final : public shard::OnDevice, public std::enable_shared_from_this<DeviceShard> {
 public:
  /// @param mutex  of all shards on the device; it outlives them
  static base::Result<std::shared_ptr<shard::Shard>> make(shard::SpecRef spec, const shard::Position& place, TensorDevice& device, std::mutex& mutex);

  shard::OnDevice* on_device() override { return this; }
  tensor::Device& device() const override { return device_; }
  base::Status add_together(shard::Worker worker, std::span<const Addition> additions, const std::function<base::Status()>& before) override;
  base::Status add_held(shard::Worker worker, const tensor::Tensor& rows) override;
  base::Status read_held(shard::Worker worker, const tensor::Tensor& rows) override;
  base::Status read_together(shard::Worker worker, std::span<const Reading> readings) override;

  void change(shard::Write write, shard::Worker worker, uint64_t first, uint64_t count, const std::byte* values, shard::ChangePart piece) override;
  void read(shard::Worker worker, uint64_t first, uint64_t count, std::byte* out) override;
  void change_rows(shard::Write write, shard::Worker worker, std::span<const int64_t> rows, const std::byte* values, shard::ChangePart piece) override;
  void read_rows(shard::Worker worker, std::span<const int64_t> rows, std::byte* out) override;
  base::Result<shard::Scanned> scan(int64_t cursor, size_t most, bool with_values) override;

  base::Status set_updater(const shard::UpdaterSpec& updater) override;
  shard::UpdaterSpec updater() const override;
  shard::Mark mark() const override;
  void set_mark(const shard::Mark& mark) override;
  shard::WithinAdd within_add() const override;
  void set_within_add(const shard::WithinAdd& progress) override;
  shard::Usage usage() const override;

  base::Result<std::unique_ptr<shard::Snapshot>> snapshot(shard::Scope scope) override;
  base::Status restore(const shard::Restored& rows) override;
  base::Status restore_states(const shard::Restored& rows) override;
  void read_stored(uint64_t array, uint64_t first, uint64_t count, std::byte* out) override;
  uint64_t next_stored(uint64_t array) const override;

 private:
  using BlockRef = std::shared_ptr<tensor::Block>;
  /// What an add does.
  enum class Work { kAdds, kCopies, kUpdates };
  /// An updater in use, with its states and its progress.
  struct Model {
    shard::UpdaterSpec spec;
    std::unique_ptr<shard::Updater> updater;
    Work work;
    std::vector<BlockRef> states;
    std::vector<void*> places;  ///< of the states
    std::shared_ptr<shard::Progress> progress;  ///< of an updater that counts
  };
  using ModelRef = std::shared_ptr<const Model>;
  /// A gradient on the device for a whole shard.
  struct Sum {
    const DeviceShard* shard;
    const void* gradient;
  };
  /// Rows of a call, packed: their numbers, and their values in the table's dtype, both on the device.
  struct Packed {
    const uint64_t* rows;
    const void* values;
    uint64_t count;
  };

  DeviceShard(shard::SpecRef spec, shard::Range rows, TensorDevice& device, std::mutex& mutex, BlockRef values, const shard::Position& place);
  base::Result<ModelRef> make_model(const shard::UpdaterSpec& updater) const;
  base::Result<BlockRef> allocate(tensor::Allocator::Content content) const;

  std::byte* at(const BlockRef& array, uint64_t element) const { return array->data() + element * stored_bytes_; }
  bool wants_whole() const { return model_->updater->sums() > 0; }
  Target target_of(const Model& model, const shard::Step* step, uint64_t first, uint64_t count, const void* gradient) const;
  /// Adds `gradient`, elements of the table's dtype on this device.
  void add(const Stream& stream, const shard::Step* step, uint64_t first, uint64_t count, const void* gradient) const;
  void list_add(WorkList& work, uint64_t first, uint64_t count, const void* gradient) const;
  /// Counts an add that work(step) makes, unless that fails.
  template <typename Adding>
  void count_add(shard::ChangePart piece, const Adding& work) const;
  /// Shards that have one formula.
  struct Batch {
    std::vector<Sum> sums;
    std::vector<shard::Mark> marks = {};  ///< before they were counted
    std::optional<Update> update = {};    ///< none: they add or copy
  };
  static void prepare(const Stream& stream, Batch& batch);
  static void uncount(const Batch& batch);
  static void to_host(const Stream& stream, void* to, const void* from, size_t bytes);
  void add_packed(const Stream& stream, Scratch& scratch, const Packed& packed, std::span<const int64_t> rows, shard::ChangePart piece);
  void add_rows(const Stream& stream, Scratch& scratch, const Packed& packed, const shard::Step* step, std::span<const int64_t> rows, bool clears);
  void update_packed(const Stream& stream, Scratch& scratch, const Packed& packed, const shard::Step* step) const;
  void update_each(const Stream& stream, const Packed& packed, const shard::Step* step, std::span<const int64_t> rows) const;
  Packed pack(Scratch& scratch, std::span<const int64_t> rows, const std::byte* values) const;
  void put(const Stream& stream, const BlockRef& array, const Packed& packed, const void* stored) const;
  const void* take(const Stream& stream, Scratch& scratch, const BlockRef& array, const Packed& packed) const;
  const void* widened(const Stream& stream, Scratch& scratch, const Packed& packed) const;
  void clear(const Stream& stream) const;
  bool is_updated_with(const DeviceShard& other) const;
  bool rounds_for(std::span<const tensor::Tensor> outs) const;
  void restore_arrays(const shard::Restored& rows, bool with_values);

  TensorDevice& device_;
  const mv_dtype stored_;  ///< the storage dtype
  const size_t stored_bytes_;
  const std::shared_ptr<shard::Families> families_;
  const BlockRef values_;
  std::mutex& mutex_;  ///< guards the members below, and keeps the launches of one call together
  ModelRef model_;
};

/// MV_ENOSYS if shards on devices can't have this updater.
base::Status check_updater(const shard::UpdaterSpec& updater);

/// Makes the shards of tables on the devices of this process.
class TableDevices final : public shard::DeviceShards {
 public:
  explicit TableDevices(TensorDevices& devices) : devices_(devices) {}
  base::Result<std::shared_ptr<shard::Shard>> make(shard::SpecRef spec, const shard::Position& place) override;
  base::Status check(const shard::UpdaterSpec& updater) const override { return check_updater(updater); }

 private:
  TensorDevices& devices_;
  std::array<std::mutex, TensorDevices::kMost> mutexes_;
};

template <typename Adding>
void DeviceShard::count_add(shard::ChangePart piece, const Adding& work) const {
  shard::Progress* const progress = model_->progress.get();
  const shard::Mark before = progress != nullptr ? progress->mark() : shard::Mark();
  const shard::WithinAdd within = progress != nullptr ? progress->within_add() : shard::WithinAdd();
  base::Undo uncount([&] {
    if (progress == nullptr) return;
    progress->set(before);
    progress->set_within_add(within);
  });
  shard::Steps<ModelRef> steps(piece == shard::ChangePart::kFirst);
  work(steps.of(model_));
  uncount.keep();
}

}  // namespace mv::device
