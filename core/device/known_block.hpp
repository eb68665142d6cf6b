#pragma once
// Blocks of devices' memory that this process uses.

#include <cstddef>

#include "tensor/device.hpp"

namespace mv::device {

/// A block that find() finds, also when the plug-in can't tell any more where an address is: after an error of a device, or in a forked child.
class KnownBlock : public tensor::Block {
 public:
  KnownBlock(std::byte* data, size_t bytes, MemoryKind kind, tensor::Device& device);
  ~KnownBlock() override;

  /// The device of the block that has the address; null: it is in none. Takes time for each block.
  static tensor::Device* find(const void* memory);

  /// Called around a fork(), so that a child can continue to free blocks.
  static void before_fork() noexcept;
  static void after_fork() noexcept;

 private:
  KnownBlock* before_ = nullptr;
  KnownBlock* behind_ = nullptr;
};

}  // namespace mv::device
