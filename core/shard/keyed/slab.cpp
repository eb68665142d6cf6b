#include "shard/keyed/slab.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace mv::shard {

namespace {
/// The approximate size of a chunk, and the most that a slab wastes at its end.
constexpr size_t kChunkBytes = 16 << 10;
/// Blocks double in size between these limits, so that small tables stay small and large ones get huge pages.
constexpr size_t kLeastBlock = 64 << 10, kMostBlock = 8 << 20;
}  // namespace

std::byte* ChunkPool::take() {
  std::lock_guard lock(mutex_);
  if (blocks_.empty() || blocks_.back().bytes() - used_ < chunk_bytes_) {
    const size_t wanted = blocks_.empty() ? kLeastBlock : std::min(2 * blocks_.back().bytes(), kMostBlock);
    auto memory = base::Memory::make(std::max(wanted, chunk_bytes_));
    if (!memory.ok()) throw std::bad_alloc();
    blocks_.push_back(std::move(memory).value());
    used_ = 0;
  }
  std::byte* chunk = blocks_.back().data() + used_;
  used_ += chunk_bytes_;
  return chunk;
}

unsigned Slab::shift_for(size_t stride) { return std::bit_width(std::max<size_t>(1, kChunkBytes / stride)) - 1; }

}  // namespace mv::shard
