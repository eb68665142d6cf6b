#pragma once
// The memory of tensors: shared, so that another process can be shown what lies in it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.hpp"
#include "base/shared_memory.hpp"

namespace mv::tensor {

/// Memory that tensors have together. It goes when the last of them does.
class Block {
 public:
  enum class MemoryKind { kShared, kPrivate, kLent };
  Block(std::byte* data, size_t bytes, MemoryKind kind);
  virtual ~Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Other processes can be shown it. What a forked child has of its parent is the child's own.
  bool is_shared() const { return kind_ == MemoryKind::kShared && base::SharedMemory::is_ours(made_at_); }
  bool is_lent() const { return kind_ == MemoryKind::kLent; }
  uint64_t number() const { return number_; }

  /// Open handles of tensors upon it: what a binding must know that keeps lent memory alive.
  std::atomic<uint64_t> handles{0};

 protected:
  uint32_t made_at() const { return made_at_; }

 private:
  std::byte* const data_;
  const size_t bytes_;
  const MemoryKind kind_;
  const uint32_t made_at_;  ///< SharedMemory::forks()
  const uint64_t number_;
};

/// Gives blocks out. Small ones are carved from arenas, so that a thousand of them do not need a thousand descriptors;
/// a large one is a segment of its own. What comes back is used again: a fresh page costs several times what a copy
/// into it does: unless the process has been forked since the block was made, when a child may be reading it. Any thread.
class Heap {
 public:
  Heap();

  enum class Content { kZeros, kAnything };
  /// At least `bytes`, at a multiple of 64. MV_ENOMEM.
  base::Result<std::shared_ptr<Block>> allocate(size_t bytes, Content content);
  /// The caller's memory.
  static std::shared_ptr<Block> lend(std::byte* data, size_t bytes);

  struct Use {
    size_t segments;     ///< descriptors
    size_t bytes;        ///< of all segments
    size_t bytes_given;  ///< of blocks that are out
  };
  Use use() const;

  /// Round a fork(), in the parent and in the child: no other thread is in the midst of a change then. A child may go on using
  /// the heap, and what it makes there is shared memory of its own.
  void before_fork() noexcept;
  void after_fork() noexcept;

 private:
  class Store;
  std::shared_ptr<Store> store_;  // blocks outlive the heap
};

}  // namespace mv::tensor
