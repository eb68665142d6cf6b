#pragma once
// Computations of several kernels on a device.

#include <optional>
#include <span>
#include <vector>

#include "codec/on_device.hpp"
#include "device/device.hpp"
#include "shard/updater/updater.hpp"

namespace mv::device {

/// An array of a device seen as outer x along x inner elements.
struct Extent {
  uint64_t outer = 1, along = 1, inner = 1;
};

/// An mv_tensor_reduce_op over `along`: outer x inner results at `out`, of the dtype that tensor::reduce() gives, with its
/// bits. MV_MEAN and MV_SUM of halves give f32; those of integers f64 and i64.
base::Status reduce(const Stream& stream, int32_t op, mv_dtype dtype, const void* in, const Extent& extent, void* out);

/// out[i] = in[i], converted.
base::Status cast(const Stream& stream, mv_dtype to, void* out, mv_dtype from, const void* in, uint64_t count);

/// The rows of one array, for kernels.
inline mv_device_rows one_array(void* data) { return {data, nullptr, 0, 0}; }

/// A tensor to update. `states` are updater.states() arrays of the storage dtype, as `values` is.
struct Target {
  void* values = nullptr;
  const void* gradient = nullptr;
  const void* backup = nullptr;
  std::span<void* const> states = {};
  uint64_t count = 0;
  uint64_t first = 0;
  shard::Step step = {};  ///< updater.step(), if it counts
};
/// Whether update() has this updater.
bool has_formula(const shard::UpdaterSpec& spec);
/// The number of launches that update() makes, whatever the number of targets.
size_t update_launches(const shard::UpdaterSpec& spec);
/// An update of all targets at once, as Updater::apply() does each. make() has all memory that launch() needs, so that only a failure of the
/// device is left to happen there.
class Update {
 public:
  /// MV_ENOMEM. MV_EDTYPE unless `dtype` is f32 or f64 and `gradient` is a float; MV_ENOSYS for updaters without a formula here: "add" and
  /// "assign" are MV_DEVICE_AXPY and copies. The stream must outlive it.
  static base::Result<Update> make(const Stream& stream, const shard::UpdaterSpec& spec, mv_dtype dtype, mv_dtype gradient, std::span<const Target> targets);
  base::Status launch() const;

 private:
  explicit Update(const Stream& stream) : stream_(&stream) {}
  const Stream* stream_;
  std::optional<Memory> keys_;  ///< none: there is nothing to update
  std::optional<Memory> sums_;  ///< of tiles, for updaters that measure
  mv_device_update work_{};
};
base::Status update(const Stream& stream, const shard::UpdaterSpec& spec, mv_dtype dtype, mv_dtype gradient, std::span<const Target> targets);

/// An update of rows of a table in one launch, each named once. The updater has a formula that needs no norms, and is not kRandomUpdater.
struct RowsTarget {
  mv_device_rows values;
  std::span<const mv_device_rows> states;
  const void* gradient;
  const void* backup;
  const uint64_t* rows;
  uint64_t count, width;
};
/// @param step  of an updater that counts, or null
base::Status update_rows(const Stream& stream, const shard::UpdaterSpec& spec, mv_dtype dtype, mv_dtype gradient, const RowsTarget& target,
                         const shard::Step* step);

/// Whether encode() and decode() have the codec.
bool has_codec(const codec::Codec& codec);
/// The bytes that encode() needs at `out`: the encoded bytes, and room to work behind them.
size_t encoding_room(const codec::Codec& codec, uint64_t count);
/// What codec::OnDevice has: a few launches for any number of arrays. Takes no memory of the host. MV_ENOSYS for other codecs.
base::Status encode(const Stream& stream, const codec::Codec& codec, std::span<const codec::Encoding> arrays);
base::Status decode(const Stream& stream, const codec::Codec& codec, std::span<const codec::Decoding> arrays, bool adds);

}  // namespace mv::device
