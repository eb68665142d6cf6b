#pragma once
// PinnedMemory: memory of the host that a device copies from and to at full speed, kept for reuse.

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.hpp"
#include "tensor/heap.hpp"

namespace mv::device {

/// Small blocks, and those that can't be pinned, are the heap's. Any thread. Blocks may outlive it.
class PinnedMemory final : public tensor::Allocator {
 public:
  PinnedMemory(const Device& device, tensor::Heap& heap);
  base::Result<std::shared_ptr<tensor::Block>> allocate(size_t bytes, Content content) override;
  tensor::Heap& host() override { return heap_; }

 private:
  class Kept;
  class PinnedBlock;
  const std::shared_ptr<Kept> kept_;
  tensor::Heap& heap_;
};

}  // namespace mv::device
