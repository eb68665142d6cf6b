#include "device/known_block.hpp"

#include <mutex>

namespace mv::device {

namespace {

/// Linked, so that to free a block needs no memory. Never destroyed: tensors may outlive everything else.
struct All {
  std::mutex mutex;
  KnownBlock* first = nullptr;
};
All& all() {
  static All& all = *new All;
  return all;
}

}  // namespace

KnownBlock::KnownBlock(std::byte* data, size_t bytes, MemoryKind kind, tensor::Device& device) : Block(data, bytes, kind, &device) {
  const std::lock_guard lock(all().mutex);
  behind_ = all().first;
  if (behind_ != nullptr) behind_->before_ = this;
  all().first = this;
}

KnownBlock::~KnownBlock() {
  const std::lock_guard lock(all().mutex);
  (before_ != nullptr ? before_->behind_ : all().first) = behind_;
  if (behind_ != nullptr) behind_->before_ = before_;
}

tensor::Device* KnownBlock::find(const void* memory) {
  const auto* const at = static_cast<const std::byte*>(memory);
  const std::lock_guard lock(all().mutex);
  for (const KnownBlock* block = all().first; block != nullptr; block = block->behind_)
    if (at >= block->data() && at < block->data() + block->bytes()) return block->device();
  return nullptr;
}

void KnownBlock::before_fork() noexcept { all().mutex.lock(); }
void KnownBlock::after_fork() noexcept { all().mutex.unlock(); }

}  // namespace mv::device
