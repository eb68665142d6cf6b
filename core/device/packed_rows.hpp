#pragma once
// Rows of a call on a table in the memory of a device: their numbers and values, packed.

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "base/undo.hpp"
#include "device/operations.hpp"
#include "device/scratch.hpp"
#include "shard/on_device.hpp"
#include "shard/updater/progress.hpp"

namespace mv::device {

/// An updater in use, with its progress. The states are the shard's.
struct Model {
  /// What an add does.
  enum class Work { kAdds, kCopies, kUpdates };
  shard::UpdaterSpec spec;
  std::unique_ptr<shard::Updater> updater;
  Work work;
  std::shared_ptr<shard::Progress> progress;  ///< of an updater that counts

  /// @param stored  the storage dtype
  void use(const shard::UpdaterSpec& updater_spec, mv_dtype stored);
};

/// The updater whose random numbers depend on the numbers of elements, which packed rows do not have. It has no states.
inline constexpr const char* kRandomUpdater = "mx.sgld";
/// MV_ENOSYS if shards on devices can't have this updater.
base::Status check_updater(const shard::UpdaterSpec& updater, bool is_keyed);

/// Counts an add that work(step) makes, unless that throws. ModelRef points to a Model.
template <typename ModelRef, typename Adding>
void count_add(const ModelRef& model, shard::ChangePart piece, const Adding& work) {
  shard::Progress* const progress = model->progress.get();
  const shard::Mark before = progress != nullptr ? progress->mark() : shard::Mark();
  const shard::WithinAdd within = progress != nullptr ? progress->within_add() : shard::WithinAdd();
  base::Undo uncount([&] {
    if (progress == nullptr) return;
    progress->set(before);
    progress->set_within_add(within);
  });
  shard::Steps<ModelRef> steps(piece == shard::ChangePart::kFirst);
  work(steps.of(model));
  uncount.keep();
}

/// work(first, count) for one part after the other of `rows` rows, so that a call of any size needs little memory beside the
/// table. Row bytes 0: all at once.
template <typename Work>
void in_pieces(uint64_t rows, size_t row_bytes, const Work& work) {
  constexpr size_t kPieceBytes = size_t{8} << 20;
  const uint64_t most = row_bytes == 0 ? rows : std::max<uint64_t>(1, kPieceBytes / row_bytes);
  for (uint64_t first = 0; first < rows; first += most) work(first, std::min(most, rows - first));
}

/// Copies to the host, and waits.
void to_host(const Stream& stream, void* to, const void* from, size_t bytes);

/// Rows, each once, and their values: the last ones that were given.
struct LastOnes {
  LastOnes(std::span<const int64_t> given, const std::byte* given_values, size_t row_bytes);
  std::vector<int64_t> rows;
  std::vector<std::byte> values;
};

/// Rows of one call. All functions throw DeviceFailure. What they make lives as long as `scratch`.
struct PackedRows {
  const Stream& stream;
  Scratch& scratch;
  const shard::Spec& spec;
  uint64_t count;
  const uint64_t* rows = nullptr;  ///< their numbers in the arrays, on the device
  const void* values = nullptr;    ///< of the table's dtype, on the device

  mv_dtype stored() const { return tensor::storage_dtype(spec.dtype); }
  /// The values in the storage dtype.
  const void* widened() const;
  /// The rows of an array, one after the other. `unknown`, or null: what it has of rows that are MV_DEVICE_NO_ROW.
  void* take(const mv_device_rows& array, void* unknown = nullptr) const;
  void put(const mv_device_rows& array, const void* of) const;
  /// Changes the rows and their states.
  /// @param backup  an array of what the worker last got, or null
  void update(const Model& model, const shard::Step* step, const mv_device_rows& values_of, std::span<const mv_device_rows> states_of,
              void* backup = nullptr) const;
  /// update() of each row as a tensor of its own, for kRandomUpdater. place(i, target) sets where the row's values are, and the
  /// number of its first element.
  template <typename Place>
  void update_each(const Model& model, const shard::Step* step, const Place& place) const {
    std::vector<Target> targets(count);
    for (size_t i = 0; i < count; ++i) {
      targets[i].gradient = static_cast<const std::byte*>(values) + i * spec.row_bytes();
      targets[i].count = spec.cols;
      if (step != nullptr) targets[i].step = *step;
      place(i, targets[i]);
    }
    update_targets(model, targets);
  }

 private:
  void update_targets(const Model& model, std::span<const Target> targets) const;
};

}  // namespace mv::device
