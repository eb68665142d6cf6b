#include "table/keyed/index.hpp"

#include <cstring>
#include <new>
#include <utility>

namespace mv::table {

namespace {
constexpr size_t kSmall = 64 << 10;
}

void Index::allocate(unsigned bits) {
  const size_t bytes = sizeof(uint32_t) << bits;
  if (bytes < kSmall) {
    small_ = std::make_unique<std::byte[]>(bytes + kAlignment);
    const auto address = reinterpret_cast<uintptr_t>(small_.get());
    words_ = reinterpret_cast<uint32_t*>((address + kAlignment - 1) / kAlignment * kAlignment);
  } else {
    auto memory = Memory::make(bytes);
    if (!memory.ok()) throw std::bad_alloc();
    memory_ = std::move(memory).value();
    words_ = reinterpret_cast<uint32_t*>(memory_.data());
  }
  bits_ = bits;
}

/// Its words; `used_` stays.
void Index::take(Index& other) {
  std::swap(words_, other.words_);
  std::swap(bits_, other.bits_);
  std::swap(memory_, other.memory_);
  std::swap(small_, other.small_);
  dead_ = 0;
  seen_.store(reinterpret_cast<uintptr_t>(words_) | bits_, std::memory_order_relaxed);
}

}  // namespace mv::table
