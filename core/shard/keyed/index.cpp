#include "shard/keyed/index.hpp"

#include <cstring>
#include <new>

namespace mv::shard {

std::shared_ptr<uint32_t> IndexPool::take(unsigned bits, size_t user) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<base::Memory> region = regions_.at(bits).lock();
  if (region == nullptr) {
    auto memory = base::Memory::make((users_ * sizeof(uint32_t)) << bits);
    if (!memory.ok()) throw std::bad_alloc();
    region = std::make_shared<base::Memory>(std::move(memory).value());
    regions_[bits] = region;
  }
  return {region, reinterpret_cast<uint32_t*>(region->data()) + (user << bits)};
}

void Index::clear(unsigned bits) {
  if (bits != bits_) {
    memory_ = pool_->take(bits, user_);
    words_ = memory_.get();
    bits_ = bits;
    most_ = most_of(bits);
    seen_.store(reinterpret_cast<uintptr_t>(words_) | bits_, std::memory_order_relaxed);
  } else {
    std::memset(words_, 0, bytes());
  }
  dead_ = 0;
}

}  // namespace mv::shard
