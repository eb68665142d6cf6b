#pragma once
// A slab allocator: pieces of memory of one size, numbered from 0, that never move.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/memory.hpp"

namespace mv::shard {

/// Chunks of one size, for all slabs of a shard. They are cut from large blocks, which can have huge pages. Chunks live
/// as long as the pool. Any thread.
class ChunkPool {
 public:
  explicit ChunkPool(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  size_t chunk_bytes() const { return chunk_bytes_; }
  /// A chunk of zeros. Throws std::bad_alloc.
  std::byte* take();

 private:
  const size_t chunk_bytes_;
  std::mutex mutex_;
  std::vector<base::Memory> blocks_;
  size_t used_ = 0;  ///< of the last block
};

/// Pieces of `stride` bytes. The owner locks.
class Slab {
 public:
  /// The binary logarithm of the pieces of a chunk: a power of two, so that finding a piece needs no division.
  static unsigned shift_for(size_t stride);
  static std::shared_ptr<ChunkPool> make_pool(size_t stride) {
    return std::make_shared<ChunkPool>(stride << shift_for(stride));
  }

  Slab(std::shared_ptr<ChunkPool> pool, size_t stride)
      : pool_(std::move(pool)), stride_(stride), shift_(shift_for(stride)) {}

  /// Where the pieces are. A copy of what that takes, which the compiler keeps in registers; valid until the next reach().
  class Pieces {
   public:
    explicit Pieces(const Slab& slab) : chunks_(slab.chunks_.data()), stride_(slab.stride_), shift_(slab.shift_) {}
    std::byte* at(uint32_t slot) const { return chunks_[slot >> shift_] + (slot & ((1u << shift_) - 1)) * stride_; }

   private:
    std::byte* const* chunks_;
    size_t stride_;
    unsigned shift_;
  };
  std::byte* at(uint32_t slot) const { return Pieces(*this).at(slot); }
  bool has(uint32_t slot) const { return (slot >> shift_) < chunks_.size(); }
  /// Makes slots 0 .. slot usable; new slots hold zeros.
  void reach(uint32_t slot) {
    while (!has(slot)) chunks_.push_back(pool_->take());
  }
  /// The number of usable slots.
  size_t slots() const { return chunks_.size() << shift_; }
  size_t stride() const { return stride_; }
  size_t bytes() const { return chunks_.size() * pool_->chunk_bytes(); }

 private:
  std::shared_ptr<ChunkPool> pool_;
  size_t stride_;
  unsigned shift_;
  std::vector<std::byte*> chunks_;
};

}  // namespace mv::shard
