#pragma once
// The hash index of a keyed table in the memory of a device; its kernels are those of work.h.

#include <memory>
#include <vector>

#include "device/keyed/chunked_rows.hpp"
#include "shard/keyed/scan_order.hpp"

namespace mv::device {

/// From ids to rows. It keeps the ids. Memory per row: 8 bytes, and 5 to 11 of the index. The owner locks.
class DeviceIndex {
 public:
  static constexpr unsigned kMostBits = 31;

  /// @param shift  of the chunks of ids
  DeviceIndex(TensorDevice& device, unsigned shift) : device_(device), ids_(device, sizeof(int64_t), shift) {}

  /// Makes room for `more` ids, which get rows below `rows`. MV_ENOMEM: nothing has changed that others see.
  base::Status reserve(uint64_t more, uint64_t rows);
  /// rows[i] = the row of ids[i], or MV_DEVICE_NO_ROW; `misses` as in mv_device_lookup. All on the device.
  base::Status find(const int64_t* ids, uint64_t count, uint64_t* rows, uint64_t* misses, const mv_device_rows& used_at = {}, uint32_t now = 0) const;
  /// Enters ids that are not there; reserve() has made room.
  base::Status insert(const int64_t* ids, const uint64_t* rows, uint64_t count);
  base::Status erase(const int64_t* ids, const uint64_t* rows, uint64_t count);
  /// How many ids can be erased and entered again, after clean(). MV_ENOMEM.
  uint64_t most_moves() const { return capacity() / 8 * 7 - used_; }
  base::Status clean(uint64_t moves);

  uint64_t size() const { return used_; }
  size_t bytes() const { return (words_ != nullptr ? words_->bytes() : 0) + ids_.bytes(); }
  size_t host_bytes() const { return words_on_host_ + ids_.host_bytes(); }
  const ChunkedRows& ids() const { return ids_; }

  // For shard::find_from(). Positions are 0 .. capacity() - 1.
  size_t capacity() const { return words_ != nullptr ? size_t{1} << bits_ : 0; }
  size_t home(uint64_t hash) const { return static_cast<size_t>(hash >> (64 - bits_)); }
  /// The entries at `count` positions from `first` on, which do not pass the end.
  base::Result<std::vector<shard::IndexEntry>> entries(size_t first, size_t count) const;

 private:
  mv_device_index place() const { return {reinterpret_cast<uint32_t*>(words_->data()), bits_, ids_.rows()}; }
  base::Status rebuild(unsigned bits);

  TensorDevice& device_;
  ChunkedRows ids_;
  unsigned bits_ = 0;
  std::shared_ptr<tensor::Block> words_;
  size_t words_on_host_ = 0;  ///< bytes
  uint64_t used_ = 0, erased_ = 0;
};

}  // namespace mv::device
