#include "base/pool.hpp"

#include <new>

namespace mv::base {

namespace {
constexpr std::align_val_t kAlignment{64};
/// Up to this size malloc is as fast, and a whole block would waste memory.
constexpr size_t kSmallBytes = 16 << 10;
}

void Pool::Free::operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }

Pool::Owned Pool::allocate(size_t bytes) { return Owned(static_cast<std::byte*>(::operator new(bytes, kAlignment))); }

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
