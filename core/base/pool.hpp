#pragma once
// A pool of reusable memory blocks: receiving into fresh memory costs five times the copy itself.

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/shared_memory.hpp"

namespace mv::base {

/// Hands out blocks of one size. A block returns to the pool with its last reference, on any thread. Much smaller and
/// larger requests are plain allocations. Any thread.
class Pool {
 public:
  /// Other processes of this machine can map a kShared block: a transport sends them its place instead of its bytes (Payload::shared()).
  enum class Blocks { kPrivate, kShared };
  /// @param block_bytes size of a block  @param keep how many unused blocks are kept
  Pool(size_t block_bytes, size_t keep, Blocks blocks = Blocks::kPrivate)
      : shelf_(std::make_shared<Shelf>(keep)), block_bytes_(block_bytes), blocks_(blocks) {}

  struct Block {
    std::shared_ptr<std::byte> memory;
    std::span<std::byte> bytes;
  };
  /// `bytes` of memory, uninitialised; aligned to 16 bytes, large ones to 64.
  Block take(size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  using Owned = std::unique_ptr<std::byte, Free>;
  /// Lives until the pool and all blocks in use are gone.
  struct Shelf {
    explicit Shelf(size_t keep) : keep(keep) {}
    std::mutex mutex;
    std::vector<Owned> unused;
    std::vector<std::shared_ptr<SharedMemory>> unused_shared;
    const size_t keep;
  };
  Block take_shared(size_t bytes);
  static Owned allocate(size_t bytes);

  std::shared_ptr<Shelf> shelf_;
  const size_t block_bytes_;
  const Blocks blocks_;
};

}  // namespace mv::base
