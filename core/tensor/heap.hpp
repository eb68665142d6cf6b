#pragma once
// Memory for tensors. That of the host is shared, so other processes can read tensors in place.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.hpp"
#include "base/shared_memory.hpp"

namespace mv::tensor {

class Device;
class Heap;

/// A block of memory, shared by tensors and freed with the last of them.
class Block {
 public:
  enum class MemoryKind { kShared, kPrivate, kLent };
  /// @param device  null: the host's memory
  Block(std::byte* data, size_t bytes, MemoryKind kind, Device* device = nullptr);
  virtual ~Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// Whether other processes can map it. Memory that a forked child has from its parent is private to the child.
  bool is_shared() const { return kind_ == MemoryKind::kShared && base::SharedMemory::is_ours(made_at_); }
  bool is_lent() const { return kind_ == MemoryKind::kLent; }
  /// The device that reaches it, which lives as long as the process; null: the processor does.
  Device* device() const { return device_; }
  uint64_t number() const { return number_; }

  /// Open handles of tensors on it, for bindings that keep lent memory alive.
  std::atomic<uint64_t> handles{0};

 protected:
  uint32_t made_at() const { return made_at_; }

 private:
  std::byte* const data_;
  const size_t bytes_;
  const MemoryKind kind_;
  Device* const device_;
  const uint32_t made_at_;  ///< SharedMemory::forks() at that time
  const uint64_t number_;
};

/// Memory in which tensors are made: the host's, or that of a device.
class Allocator {
 public:
  virtual ~Allocator() = default;
  enum class Content { kZeros, kAnything };
  /// At least `bytes`, at a multiple of 64. MV_ENOMEM.
  virtual base::Result<std::shared_ptr<Block>> allocate(size_t bytes, Content content) = 0;
  /// The host's memory, in which the ids of a row-sparse tensor are in any case.
  virtual Heap& host() = 0;
};

/// Allocates blocks. Small ones are carved from arenas, so a thousand of them do not need a thousand descriptors. A
/// large one is a segment of its own. Freed memory is reused, because a fresh page costs several times a copy into it.
/// The exception is memory made before a fork(), which a child may still read. Any thread.
class Heap : public Allocator {
 public:
  Heap();

  base::Result<std::shared_ptr<Block>> allocate(size_t bytes, Content content) override;
  Heap& host() override { return *this; }
  /// The caller's memory.
  static std::shared_ptr<Block> lend(std::byte* data, size_t bytes);

  struct Use {
    size_t segments;     ///< descriptors
    size_t bytes;        ///< of all segments
    size_t bytes_given;  ///< of blocks in use
  };
  Use use() const;

  /// Called around a fork(), in the parent and in the child, so that no other thread is in the middle of a change. A
  /// child may continue to use the heap; its new blocks are shared memory of its own.
  void before_fork() noexcept;
  void after_fork() noexcept;

 private:
  class Store;
  std::shared_ptr<Store> store_;  // blocks outlive the heap
};

}  // namespace mv::tensor
