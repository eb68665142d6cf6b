#pragma once
// Descriptors that a forked child is to close: it can do so without a lock or an allocation, whatever the parent's
// threads were doing at the fork.

#include <unistd.h>

#include <array>
#include <atomic>

namespace mv::base {

class Descriptors {
 public:
  Descriptors() = default;
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    for (Block* block = first_.next.load(); block != nullptr;) {
      Block* next = block->next.load();
      delete block;
      block = next;
    }
  }

  /// Any thread.
  void add(int fd) {
    for (Block* block = &first_;;) {
      for (auto& slot : block->slots) {
        int empty = 0;
        if (slot.load(std::memory_order_relaxed) == 0 && slot.compare_exchange_strong(empty, fd + 1)) return;
      }
      block = next_of(*block);
    }
  }
  void remove(int fd) {
    for (Block* block = &first_; block != nullptr; block = block->next.load()) {
      for (auto& slot : block->slots) {
        int held = fd + 1;
        if (slot.load(std::memory_order_relaxed) == held && slot.compare_exchange_strong(held, 0)) return;
      }
    }
  }
  /// Async-signal-safe.
  void close_all() noexcept {
    for (Block* block = &first_; block != nullptr; block = block->next.load()) {
      for (auto& slot : block->slots) {
        if (const int held = slot.exchange(0); held != 0) ::close(held - 1);
      }
    }
  }

 private:
  struct Block {
    std::array<std::atomic<int>, 64> slots{};  // fd + 1; 0 = free
    std::atomic<Block*> next{nullptr};
  };
  static Block* next_of(Block& block) {
    Block* next = block.next.load();
    if (next != nullptr) return next;
    auto* made = new Block;
    if (block.next.compare_exchange_strong(next, made)) return made;
    delete made;
    return next;
  }

  Block first_;
};

}  // namespace mv::base
