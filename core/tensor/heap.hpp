#pragma once
// The memory of tensors: shared, so that another process can be shown what lies in it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.hpp"

namespace mv::tensor {

/// Memory that tensors have together. It goes when the last of them does.
class Block {
 public:
  Block(std::byte* data, size_t bytes, bool is_shared, bool is_lent);
  virtual ~Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool is_shared() const { return is_shared_; }
  bool is_lent() const { return is_lent_; }
  uint64_t number() const { return number_; }

  /// Open handles of tensors upon it: what a binding must know that keeps lent memory alive.
  std::atomic<uint64_t> handles{0};

 private:
  std::byte* const data_;
  const size_t bytes_;
  const bool is_shared_;
  const bool is_lent_;
  const uint64_t number_;
};

/// Gives blocks out. Small ones are carved from arenas, so that a thousand of them do not need a thousand descriptors;
/// a large one is a segment of its own. What comes back is used again: a fresh page costs several times what a copy
/// into it does. Any thread.
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

 private:
  class Store;
  std::shared_ptr<Store> store_;  // blocks outlive the heap
};

}  // namespace mv::tensor
