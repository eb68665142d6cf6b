#pragma once
// Counts the uses of a table, and the path that its values took.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "shard/spec.hpp"

namespace mv::table {

/// The kind of a call. The first three are wire::Write's, in its order.
enum class Use : uint8_t { kAdd, kSet, kErase, kGet, kPeek };
inline constexpr std::array<const char*, 5> kUseNames = {"add", "set", "erase", "get", "peek"};

/// kHere: the caller's thread worked on the shard itself. kMapped: it read a server's shard in shared memory. kMessage: at least one
/// part of the table took a message.
enum class Path : uint8_t { kHere, kMapped, kMessage };
inline constexpr std::array<const char*, 3> kPathNames = {"local", "mapped", "message"};

/// Calls, and the bytes of their values.
struct Used {
  struct Of {
    uint64_t calls = 0, bytes = 0;
  };
  std::array<std::array<Of, kPathNames.size()>, kUseNames.size()> by;
  uint64_t encoded_from = 0, encoded_to = 0;  ///< bytes of adds by message, before and after a codec

  uint64_t calls(Use use) const {
    uint64_t sum = 0;
    for (const Of& of : by[static_cast<size_t>(use)]) sum += of.calls;
    return sum;
  }
  void add(const Used& other) {
    encoded_from += other.encoded_from;
    encoded_to += other.encoded_to;
    for (size_t use = 0; use < by.size(); ++use)
      for (size_t path = 0; path < by[use].size(); ++path) {
        by[use][path].calls += other.by[use][path].calls;
        by[use][path].bytes += other.by[use][path].bytes;
      }
  }
};

/// The uses of one handle, or of closed handles. count() may be called from any thread. A call on the whole table costs
/// one addition, which gives its bytes, too. Counters for calls on rows and for codecs are allocated at the first such
/// call, because most handles are of keys and never need them. If there is no memory, these calls are not counted.
class Uses {
 public:
  Uses() = default;
  Uses(const Uses&) = delete;
  Uses& operator=(const Uses&) = delete;
  ~Uses() { delete partial_.load(std::memory_order_acquire); }

  void count(Use use, Path path, bool all, uint64_t rows) {
    if (all) return add(whole_[at(use, path)], 1);
    Partial* const partial = this->partial();
    if (partial == nullptr) return;
    add(partial->calls[at(use, path)], 1);
    add(partial->rows[at(use, path)], rows);
  }
  void count_encoded(uint64_t from, uint64_t to) {
    Partial* const partial = this->partial();
    if (partial == nullptr) return;
    add(partial->encoded_from, from);
    add(partial->encoded_to, to);
  }
  void add(const Uses& other) {
    for (size_t i = 0; i < kCounts; ++i) add(whole_[i], other.whole_[i].load(std::memory_order_relaxed));
    const Partial* const theirs = other.partial_.load(std::memory_order_acquire);
    Partial* const ours = theirs != nullptr ? partial() : nullptr;
    if (ours == nullptr) return;
    for (size_t i = 0; i < kCounts; ++i) add(ours->calls[i], theirs->calls[i].load(std::memory_order_relaxed));
    for (size_t i = 0; i < kCounts; ++i) add(ours->rows[i], theirs->rows[i].load(std::memory_order_relaxed));
    add(ours->encoded_from, theirs->encoded_from.load(std::memory_order_relaxed));
    add(ours->encoded_to, theirs->encoded_to.load(std::memory_order_relaxed));
  }
  Used read(const shard::Spec& spec) const {
    Used used;
    const Partial* const partial = partial_.load(std::memory_order_acquire);
    if (partial != nullptr) used.encoded_from = partial->encoded_from.load(std::memory_order_relaxed);
    if (partial != nullptr) used.encoded_to = partial->encoded_to.load(std::memory_order_relaxed);
    for (size_t i = 0; i < kCounts; ++i) {
      Used::Of& of = used.by[i / kPathNames.size()][i % kPathNames.size()];
      const uint64_t whole = whole_[i].load(std::memory_order_relaxed);
      of.calls = whole + (partial != nullptr ? partial->calls[i].load(std::memory_order_relaxed) : 0);
      if (i / kPathNames.size() == static_cast<size_t>(Use::kErase)) continue;  // an erase moves no values
      of.bytes = whole * spec.bytes() + (partial != nullptr ? partial->rows[i].load(std::memory_order_relaxed) * spec.row_bytes() : 0);
    }
    return used;
  }

 private:
  static constexpr size_t kCounts = kUseNames.size() * kPathNames.size();
  using Counts = std::array<std::atomic<uint64_t>, kCounts>;
  struct Partial {
    Counts calls{}, rows{};
    std::atomic<uint64_t> encoded_from{0}, encoded_to{0};
  };
  static size_t at(Use use, Path path) { return static_cast<size_t>(use) * kPathNames.size() + static_cast<size_t>(path); }
  static void add(std::atomic<uint64_t>& count, uint64_t more) { count.fetch_add(more, std::memory_order_relaxed); }
  /// Null if there is no memory for it.
  Partial* partial() {
    Partial* known = partial_.load(std::memory_order_acquire);
    if (known != nullptr) return known;
    auto* const made = new (std::nothrow) Partial;
    if (made == nullptr || partial_.compare_exchange_strong(known, made, std::memory_order_acq_rel)) return made;
    delete made;
    return known;
  }

  Counts whole_{};
  std::atomic<Partial*> partial_{nullptr};
};

/// The uses of all handles that a node ever had on a table. Any thread.
class TableUses {
 public:
  void open(const Uses& handle) {
    std::lock_guard lock(mutex_);
    open_.push_back(&handle);
  }
  /// Closes the handle; its uses stay.
  void close(const Uses& handle) {
    std::lock_guard lock(mutex_);
    std::erase(open_, &handle);
    if (closed_ == nullptr) closed_.reset(new (std::nothrow) Uses);
    if (closed_ != nullptr) closed_->add(handle);
  }
  Used total(const shard::Spec& spec) const {
    std::lock_guard lock(mutex_);
    Used sum = closed_ != nullptr ? closed_->read(spec) : Used();
    for (const Uses* handle : open_) sum.add(handle->read(spec));
    return sum;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<const Uses*> open_;
  std::unique_ptr<Uses> closed_;  ///< most tables have a single handle, which lives as long as they do
};

}  // namespace mv::table
