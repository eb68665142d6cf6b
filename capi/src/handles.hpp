#pragma once
// Handles: integers that represent objects to callers. A handle is kind + generation + index, below 2^53 so that a
// number of Lua or JavaScript holds it. A slot's generation grows each time the slot is freed, so an old handle never
// finds the slot's new object.

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace mv::capi {

enum class HandleKind : uint32_t { kNode = 1, kTable = 2, kRequest = 3, kTensor = 4, kStore = 5, kGossip = 6, kGroup = 7, kCustom = 8, kStrategy = 9 };
inline constexpr uint64_t kLastKind = 9;

inline constexpr int kIndexBits = 24;
inline constexpr int kGenerationBits = 25;
static_assert(kLastKind < uint64_t{1} << (53 - kGenerationBits - kIndexBits), "a handle is below 2^53");
inline constexpr uint32_t kLastGeneration = (1u << kGenerationBits) - 1;

struct HandleParts {
  HandleKind kind;
  uint32_t generation;
  uint32_t index;
};

constexpr int64_t join_handle(HandleParts parts) {
  return static_cast<int64_t>(uint64_t{static_cast<uint32_t>(parts.kind)} << (kGenerationBits + kIndexBits) |
                              uint64_t{parts.generation} << kIndexBits | parts.index);
}

/// False if no handle of any kind can have this value.
constexpr bool split_handle(int64_t handle, HandleParts* parts) {
  if (handle <= 0) return false;
  const auto bits = static_cast<uint64_t>(handle);
  const uint64_t kind = bits >> (kGenerationBits + kIndexBits);
  parts->kind = static_cast<HandleKind>(kind);
  parts->generation = static_cast<uint32_t>(bits >> kIndexBits) & kLastGeneration;
  parts->index = static_cast<uint32_t>(bits) & ((1u << kIndexBits) - 1);
  return kind >= 1 && kind <= kLastKind && parts->generation != 0;
}

/// The state of a handle.
enum class Fate { kNever, kReserved, kOpen, kClosed };

/// The objects of one kind. Finding one takes no lock: a slot's state word holds generation, flags and the number of
/// users, so one compare-and-swap checks a handle and keeps its object alive (a "pin"). The last unpin of a closed slot
/// destroys the object. Slots never move and are never freed.
template <typename T>
class HandleTable {
  static constexpr uint64_t kPins = (uint64_t{1} << 32) - 1;
  static constexpr uint64_t kOpenBit = uint64_t{1} << 32;      // the object exists and may be pinned
  static constexpr uint64_t kClosingBit = uint64_t{1} << 33;   // open, but being closed: no new pins
  static constexpr uint64_t kReservedBit = uint64_t{1} << 34;  // the handle exists, but its object does not yet
  static constexpr int kGenerationShift = 64 - kGenerationBits;

  struct alignas(64) Slot {
    std::atomic<uint64_t> state{0};
    uint32_t index = 0;
    uint32_t next_free = kNoSlot;
    alignas(T) std::byte storage[sizeof(T)];
    T* object() { return std::launder(reinterpret_cast<T*>(storage)); }
  };

 public:
  HandleTable(HandleKind kind, uint32_t first_generation)
      : kind_(kind), first_generation_(first_generation), newest_(first_generation) {}
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;
  ~HandleTable() {
    for_each_alone([](T& object) { std::destroy_at(&object); });
    for (auto& bucket : buckets_) delete[] bucket.load(std::memory_order_relaxed);
  }

  /// Keeps an object alive while it is used.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept : table_(other.table_), slot_(std::exchange(other.slot_, nullptr)) {}
    Pin& operator=(Pin&& other) noexcept {
      std::swap(table_, other.table_);
      std::swap(slot_, other.slot_);
      return *this;
    }
    ~Pin() {
      if (slot_ != nullptr) table_->unpin(*slot_);
    }
    explicit operator bool() const { return slot_ != nullptr; }
    T& operator*() const { return *slot_->object(); }
    T* operator->() const { return slot_->object(); }

   private:
    friend class HandleTable;
    Pin(HandleTable* table, Slot* slot) : table_(table), slot_(slot) {}
    HandleTable* table_ = nullptr;
    Slot* slot_ = nullptr;
  };

  /// The object of an open handle; an empty pin for any other integer.
  Pin pin(int64_t handle) {
    HandleParts parts;
    if (!split_handle(handle, &parts) || parts.kind != kind_) return {};
    Slot* slot = find(parts.index);
    return slot != nullptr && try_pin(*slot, parts.generation) ? Pin(this, slot) : Pin();
  }

  /// A handle whose object comes later: no lookup finds it until publish(). Throws std::bad_alloc if all are in use.
  int64_t reserve() {
    std::lock_guard lock(free_mutex_);
    Slot& slot = free_ != kNoSlot ? take_free() : add_slot();
    const uint32_t generation = generation_of(slot.state.load(std::memory_order_relaxed));
    if (generation > newest_.load(std::memory_order_relaxed)) newest_.store(generation, std::memory_order_relaxed);
    slot.state.store(state_word(generation) | kReservedBit, std::memory_order_release);
    return join_handle({kind_, generation, slot.index});
  }
  void publish(int64_t reserved, T object) {
    Slot& slot = slot_of(reserved);
    new (slot.storage) T(std::move(object));
    slot.state.store((slot.state.load(std::memory_order_relaxed) & ~kReservedBit) | kOpenBit,
                     std::memory_order_release);
  }
  void abandon(int64_t reserved) { recycle(slot_of(reserved)); }

  int64_t insert(T object) {
    const int64_t handle = reserve();
    publish(handle, std::move(object));
    return handle;
  }

  /// Closes the handle; the object lives until its last pin is released. True for the one caller that closed it.
  bool close(const Pin& pin) {
    return (pin.slot_->state.fetch_and(~(kOpenBit | kClosingBit), std::memory_order_acq_rel) & kOpenBit) != 0;
  }
  /// Refuses new pins before the handle is closed: close() or reopen() must follow. False if another thread is closing
  /// it.
  bool begin_close(const Pin& pin) {
    uint64_t seen = pin.slot_->state.load(std::memory_order_acquire);
    do {
      if ((seen & kOpenBit) == 0 || (seen & kClosingBit) != 0) return false;
    } while (!pin.slot_->state.compare_exchange_weak(seen, seen | kClosingBit, std::memory_order_acq_rel));
    return true;
  }
  void reopen(const Pin& pin) { pin.slot_->state.fetch_and(~kClosingBit, std::memory_order_acq_rel); }

  Fate fate(int64_t handle) const {
    HandleParts parts;
    if (!split_handle(handle, &parts) || parts.kind != kind_) return Fate::kNever;
    if (parts.generation < first_generation_) return Fate::kClosed;  // from the table that this one replaced
    const Slot* slot = find(parts.index);
    if (slot == nullptr) return Fate::kNever;
    const uint64_t seen = slot->state.load(std::memory_order_acquire);
    if (parts.generation < generation_of(seen)) return Fate::kClosed;
    if (parts.generation > generation_of(seen)) return Fate::kNever;
    if ((seen & kReservedBit) != 0) return Fate::kReserved;
    if ((seen & kClosingBit) != 0) return Fate::kClosed;
    return (seen & kOpenBit) != 0 ? Fate::kOpen : (seen & kPins) != 0 ? Fate::kClosed : Fate::kNever;
  }

  /// Calls visit(pin) for every open object. Objects that are added or closed meanwhile may be visited or not.
  template <typename Visit>
  void for_each(Visit visit) {
    const uint32_t count = slots_.load(std::memory_order_acquire);
    for (uint32_t index = 0; index < count; ++index) {
      Slot* slot = find(index);
      if (slot != nullptr && try_pin(*slot, generation_of(slot->state.load(std::memory_order_acquire))))
        visit(Pin(this, slot));
    }
  }
  /// for_each() without pins, locks or allocation, if no other thread runs: in a forked child, or at the end.
  template <typename Visit>
  void for_each_alone(Visit visit) {
    const uint32_t count = slots_.load(std::memory_order_acquire);
    for (uint32_t index = 0; index < count; ++index) {
      Slot* slot = find(index);
      if (slot != nullptr && (slot->state.load(std::memory_order_acquire) & kOpenBit) != 0) visit(*slot->object());
    }
  }

  /// Called around a fork(), so that a child can continue to use the table: no other thread is reserving or freeing a
  /// slot. Slots that another thread has pinned or reserved stay so in the child.
  void before_fork() noexcept { free_mutex_.lock(); }
  void after_fork() noexcept { free_mutex_.unlock(); }

  /// The newest generation of any slot. A table that replaces this one starts beyond it.
  uint32_t newest_generation() const { return newest_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kNoSlot = ~0u;
  // Bucket k holds 64 << k slots: few pointers, no moves, and little memory for the usual handful of handles.
  static constexpr uint32_t kFirstBucket = 64;
  static constexpr uint32_t kBuckets = kIndexBits - 6;
  static constexpr uint32_t kCapacity = kFirstBucket * ((1u << kBuckets) - 1);

  static constexpr uint64_t state_word(uint32_t generation) { return uint64_t{generation} << kGenerationShift; }
  static constexpr uint32_t generation_of(uint64_t state) { return static_cast<uint32_t>(state >> kGenerationShift); }
  static constexpr uint32_t bucket_of(uint32_t index) {
    return static_cast<uint32_t>(std::bit_width(index + kFirstBucket)) - 7;
  }
  static constexpr uint32_t offset_of(uint32_t index, uint32_t bucket) {
    return index + kFirstBucket - (kFirstBucket << bucket);
  }

  Slot* find(uint32_t index) const {
    if (index >= kCapacity) return nullptr;
    const uint32_t bucket = bucket_of(index);
    Slot* slots = buckets_[bucket].load(std::memory_order_acquire);
    return slots != nullptr ? slots + offset_of(index, bucket) : nullptr;
  }
  /// The slot of a handle that this table made.
  Slot& slot_of(int64_t handle) const { return *find(static_cast<uint32_t>(handle) & ((1u << kIndexBits) - 1)); }

  static bool try_pin(Slot& slot, uint32_t generation) {
    uint64_t seen = slot.state.load(std::memory_order_relaxed);
    do {
      if (generation_of(seen) != generation || (seen & (kOpenBit | kClosingBit)) != kOpenBit) return false;
    } while (!slot.state.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire, std::memory_order_relaxed));
    return true;
  }
  void unpin(Slot& slot) {
    const uint64_t before = slot.state.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & kPins) != 1 || (before & kOpenBit) != 0) return;
    std::destroy_at(slot.object());
    recycle(slot);
  }
  void recycle(Slot& slot) {
    const uint32_t generation = generation_of(slot.state.load(std::memory_order_relaxed));
    std::lock_guard lock(free_mutex_);
    if (generation == kLastGeneration) {  // generations exhausted: never used again, so that no handle value repeats
      slot.state.store(state_word(generation) | 1, std::memory_order_release);
      return;
    }
    slot.state.store(state_word(generation + 1), std::memory_order_release);
    slot.next_free = free_;
    free_ = slot.index;
  }
  Slot& take_free() {
    Slot& slot = *find(free_);
    free_ = slot.next_free;
    return slot;
  }
  Slot& add_slot() {
    const uint32_t index = slots_.load(std::memory_order_relaxed);
    if (index >= kCapacity) throw std::bad_alloc();
    const uint32_t bucket = bucket_of(index);
    if (buckets_[bucket].load(std::memory_order_relaxed) == nullptr) {
      Slot* slots = new Slot[size_t{kFirstBucket} << bucket];
      for (uint32_t i = 0; i < kFirstBucket << bucket; ++i)
        slots[i].state.store(state_word(first_generation_), std::memory_order_relaxed);
      buckets_[bucket].store(slots, std::memory_order_release);
    }
    Slot& slot = *find(index);
    slot.index = index;
    slots_.store(index + 1, std::memory_order_release);
    return slot;
  }

  const HandleKind kind_;
  const uint32_t first_generation_;
  std::atomic<uint32_t> newest_;
  std::array<std::atomic<Slot*>, kBuckets> buckets_{};
  std::atomic<uint32_t> slots_{0};
  std::mutex free_mutex_;
  uint32_t free_ = kNoSlot;
};

}  // namespace mv::capi
