#include "base/pool.hpp"

#include <atomic>
#include <new>

namespace mv::base {

namespace {
constexpr std::align_val_t kAlignment{64};
/// Up to this size malloc is as fast, and a whole block would waste memory.
constexpr size_t kSmallBytes = 16 << 10;
/// Shared blocks of this process: each takes a descriptor.
constexpr size_t kMostShared = 128;
std::atomic<size_t> shared_blocks{0};
}

void Pool::Free::operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }

Pool::Owned Pool::allocate(size_t bytes) { return Owned(static_cast<std::byte*>(::operator new(bytes, kAlignment))); }

/// An empty block if there is no shared memory, or no descriptor for it.
Pool::Block Pool::take_shared(size_t bytes) {
  std::shared_ptr<SharedMemory> memory;
  {
    std::lock_guard lock(shelf_->mutex);
    if (!shelf_->unused_shared.empty()) {
      memory = std::move(shelf_->unused_shared.back());
      shelf_->unused_shared.pop_back();
    }
  }
  if (memory == nullptr) {
    if (shared_blocks.load(std::memory_order_relaxed) >= kMostShared) return {};
    auto made = SharedMemory::make("polyverso-blocks", block_bytes_);
    if (!made.ok()) return {};
    SharedMemory::enlist(made.value());
    memory = std::shared_ptr<SharedMemory>(made.value().get(), [kept = made.value()](SharedMemory*) { --shared_blocks; });
    ++shared_blocks;
  }
  std::byte* const at = memory->data();
  auto give_back = [shelf = shelf_, memory](std::byte*) {
    std::lock_guard lock(shelf->mutex);
    if (shelf->unused_shared.size() < shelf->keep) shelf->unused_shared.push_back(memory);
  };
  return {std::shared_ptr<std::byte>(at, std::move(give_back)), {at, bytes}};
}

Pool::Block Pool::take(size_t bytes) {
  if (bytes <= kSmallBytes) {
    const auto memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
    return {std::shared_ptr<std::byte>(memory, memory.get()), {memory.get(), bytes}};
  }
  if (bytes > block_bytes_) {
    Owned memory = allocate(bytes);
    std::byte* at = memory.get();
    return {std::shared_ptr<std::byte>(memory.release(), Free{}), {at, bytes}};
  }
  if (blocks_ == Blocks::kShared)
    if (Block block = take_shared(bytes); block.memory != nullptr) return block;
  Owned memory;
  {
    std::lock_guard lock(shelf_->mutex);
    if (!shelf_->unused.empty()) {
      memory = std::move(shelf_->unused.back());
      shelf_->unused.pop_back();
    }
  }
  if (!memory) memory = allocate(block_bytes_);
  std::byte* at = memory.get();
  auto give_back = [shelf = shelf_](std::byte* block) {
    Owned returned(block);
    std::lock_guard lock(shelf->mutex);
    if (shelf->unused.size() < shelf->keep) shelf->unused.push_back(std::move(returned));
  };
  return {std::shared_ptr<std::byte>(memory.release(), std::move(give_back)), {at, bytes}};
}

}  // namespace mv::base
