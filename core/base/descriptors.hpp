#pragma once
// A lock-free set of the file descriptors that a forked child closes. The child needs neither a lock nor an allocation,
// whatever the parent's threads were doing at the fork.

#include <unistd.h>

#include <array>
#include <atomic>
#include <new>

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

  /// Any thread. Throws std::bad_alloc.
  void add(int fd) {
    if (!try_add(fd)) throw std::bad_alloc();
  }
  /// False if memory runs out.
  bool try_add(int fd) noexcept {
    for (Block* block = &first_; block != nullptr; block = next_of(*block)) {
      for (auto& slot : block->slots) {
        int empty = 0;
        if (slot.load(std::memory_order_relaxed) == 0 && slot.compare_exchange_strong(empty, fd + 1)) return true;
      }
    }
    return false;
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
    for_each([](std::atomic<int>& slot) {
      if (const int held = slot.exchange(0); held != 0) ::close(held - 1);
    });
  }
  /// Calls visit(fd) for each. Any thread; allocates nothing.
  template <typename Visit>
  void visit_all(Visit visit) noexcept {
    for_each([&](std::atomic<int>& slot) {
      if (const int held = slot.load(); held != 0) visit(held - 1);
    });
  }

 private:
  struct Block {
    std::array<std::atomic<int>, 64> slots{};  // fd + 1; 0 = free
    std::atomic<Block*> next{nullptr};
  };
  template <typename Visit>
  void for_each(Visit visit) noexcept {
    for (Block* block = &first_; block != nullptr; block = block->next.load())
      for (auto& slot : block->slots) visit(slot);
  }
  static Block* next_of(Block& block) noexcept {
    Block* next = block.next.load();
    if (next != nullptr) return next;
    auto* made = new (std::nothrow) Block;
    if (made == nullptr) return nullptr;
    if (block.next.compare_exchange_strong(next, made)) return made;
    delete made;
    return next;
  }

  Block first_;
};

}  // namespace mv::base
