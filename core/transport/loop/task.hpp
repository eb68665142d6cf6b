#pragma once
// A unit of work for the loop: a move-only function object that stores most captures without a heap allocation.

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace mv::transport {

class Task {
 public:
  /// Captures up to this size that move without throwing are stored inside the Task.
  static constexpr size_t kInlineBytes = 72;

  Task() = default;
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, Task> && std::is_invocable_v<std::decay_t<F>&>) Task(F&& f) {
    using Fn = std::decay_t<F>;
    if constexpr (fits_inline<Fn>()) {
      new (storage_) Fn(std::forward<F>(f));
      calls_ = &kInlineCalls<Fn>;
    } else {
      new (storage_) Fn*(new Fn(std::forward<F>(f)));
      calls_ = &kHeapCalls<Fn>;
    }
  }
  Task(Task&& other) noexcept { take(other); }
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Task() { reset(); }

  explicit operator bool() const { return calls_ != nullptr; }
  void operator()() { calls_->run(storage_); }

 private:
  struct Calls {
    void (*run)(void*);
    void (*move)(void* to, void* from);  // also destroys `from`
    void (*destroy)(void*);
  };
  template <typename Fn>
  static constexpr bool fits_inline() {
    return sizeof(Fn) <= kInlineBytes && alignof(Fn) <= alignof(std::max_align_t) &&
           std::is_nothrow_move_constructible_v<Fn>;
  }
  template <typename Fn>
  static Fn& held(void* storage) {
    return *std::launder(static_cast<Fn*>(storage));
  }
  template <typename Fn>
  static constexpr Calls kInlineCalls{
      [](void* s) { held<Fn>(s)(); },
      [](void* to, void* from) {
        new (to) Fn(std::move(held<Fn>(from)));
        held<Fn>(from).~Fn();
      },
      [](void* s) { held<Fn>(s).~Fn(); },
  };
  template <typename Fn>
  static constexpr Calls kHeapCalls{
      [](void* s) { (*held<Fn*>(s))(); },
      [](void* to, void* from) { new (to) Fn*(held<Fn*>(from)); },
      [](void* s) { delete held<Fn*>(s); },
  };

  void take(Task& other) {
    calls_ = std::exchange(other.calls_, nullptr);
    if (calls_ != nullptr) calls_->move(storage_, other.storage_);
  }
  void reset() {
    if (calls_ != nullptr) std::exchange(calls_, nullptr)->destroy(storage_);
  }

  const Calls* calls_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[kInlineBytes];
};

}  // namespace mv::transport
