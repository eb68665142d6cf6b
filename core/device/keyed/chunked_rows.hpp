#pragma once
// Rows that are added one by one, in the memory of a device.

#include <vector>

#include "device/tensors.hpp"

namespace mv::device {

/// Rows of one size, in chunks of 2^shift rows that never move. A chunk for which the device has no memory is in the host's
/// memory, which kernels access over the bus. The owner locks.
class ChunkedRows {
 public:
  /// About 2 MiB in a chunk.
  static unsigned shift_for(size_t row_bytes);

  ChunkedRows(TensorDevice& device, size_t row_bytes, unsigned shift) : device_(&device), row_bytes_(row_bytes), shift_(shift) {}
  /// Makes rows 0 .. rows - 1 usable. New ones are zeros. MV_ENOMEM: there are as many as before, or some more.
  base::Status reach(uint64_t rows);
  /// For kernels. Valid until the next reach().
  mv_device_rows rows() const { return {nullptr, table_ != nullptr ? reinterpret_cast<void* const*>(table_->data()) : nullptr, shift_, 0}; }
  std::byte* at(uint64_t row) const { return chunks_[row >> shift_]->data() + (row & (chunk_rows() - 1)) * row_bytes_; }

  bool is_on_host(uint64_t row) const { return is_on_host_[row >> shift_]; }

  uint64_t chunk_rows() const { return uint64_t{1} << shift_; }
  size_t chunk_bytes() const { return row_bytes_ << shift_; }
  size_t chunks() const { return chunks_.size(); }
  /// Of all chunks, and of those on the host.
  size_t bytes() const { return chunks_.size() * chunk_bytes(); }
  size_t host_bytes() const { return host_bytes_; }

 private:
  base::Status grow_table(size_t chunks);

  TensorDevice* device_;
  size_t row_bytes_;
  unsigned shift_;
  std::vector<std::shared_ptr<tensor::Block>> chunks_;
  std::vector<bool> is_on_host_;          ///< by chunk
  std::shared_ptr<tensor::Block> table_;  ///< the chunks' addresses, on the device
  size_t host_bytes_ = 0;
};

}  // namespace mv::device
