#pragma once
// How often a table was used, and by which way its values went.

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "table/spec.hpp"

namespace mv::ps {

/// What a caller did. The first three are wire::Write's, in its order.
enum class Use : uint8_t { kAdd, kSet, kErase, kGet, kPeek };
inline constexpr std::array<const char*, 5> kUseNames = {"add", "set", "erase", "get", "peek"};

/// kHere: the caller's thread worked on the shard itself. kMapped: it read a server's shard in shared memory. kMessage: at least one
/// part of the table took a message.
enum class Way : uint8_t { kHere, kMapped, kMessage };
inline constexpr std::array<const char*, 3> kWayNames = {"local", "mapped", "message"};

/// Calls, and the bytes of their values.
struct Used {
  struct Of {
    uint64_t calls = 0, bytes = 0;
  };
  std::array<std::array<Of, kWayNames.size()>, kUseNames.size()> by;
  uint64_t encoded_from = 0, encoded_to = 0;  ///< bytes of adds before and after a codec, of those that took messages

  uint64_t calls(Use use) const {
    uint64_t sum = 0;
    for (const Of& of : by[static_cast<size_t>(use)]) sum += of.calls;
    return sum;
  }
  void add(const Used& other) {
    encoded_from += other.encoded_from;
    encoded_to += other.encoded_to;
    for (size_t use = 0; use < by.size(); ++use)
      for (size_t way = 0; way < by[use].size(); ++way) {
        by[use][way].calls += other.by[use][way].calls;
        by[use][way].bytes += other.by[use][way].bytes;
      }
  }
};

/// One handle's uses. count() from any thread: one addition for a call on the whole table, which tells its bytes too.
class Uses {
 public:
  void count(Use use, Way way, bool all, uint64_t rows) {
    Counts& counts = counts_[static_cast<size_t>(use)][static_cast<size_t>(way)];
    if (all) {
      counts.whole.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    counts.partial.fetch_add(1, std::memory_order_relaxed);
    counts.rows.fetch_add(rows, std::memory_order_relaxed);
  }
  void count_encoded(uint64_t from, uint64_t to) {
    encoded_from_.fetch_add(from, std::memory_order_relaxed);
    encoded_to_.fetch_add(to, std::memory_order_relaxed);
  }
  Used read(const table::Spec& spec) const {
    Used used;
    used.encoded_from = encoded_from_.load(std::memory_order_relaxed);
    used.encoded_to = encoded_to_.load(std::memory_order_relaxed);
    for (size_t use = 0; use < counts_.size(); ++use)
      for (size_t way = 0; way < counts_[use].size(); ++way) {
        const Counts& counts = counts_[use][way];
        const uint64_t whole = counts.whole.load(std::memory_order_relaxed);
        used.by[use][way].calls = whole + counts.partial.load(std::memory_order_relaxed);
        if (static_cast<Use>(use) == Use::kErase) continue;  // no values go anywhere
        used.by[use][way].bytes = whole * spec.bytes() + counts.rows.load(std::memory_order_relaxed) * spec.row_bytes();
      }
    return used;
  }

 private:
  struct Counts {
    std::atomic<uint64_t> whole{0}, partial{0}, rows{0};
  };
  std::array<std::array<Counts, kWayNames.size()>, kUseNames.size()> counts_;
  std::atomic<uint64_t> encoded_from_{0}, encoded_to_{0};
};

/// The uses of all handles that a node ever had on a table. Any thread.
class TableUses {
 public:
  void open(const Uses& handle) {
    std::lock_guard lock(mutex_);
    open_.push_back(&handle);
  }
  /// The handle goes, its uses stay.
  void close(const Uses& handle, const table::Spec& spec) {
    std::lock_guard lock(mutex_);
    std::erase(open_, &handle);
    closed_.add(handle.read(spec));
  }
  Used total(const table::Spec& spec) const {
    std::lock_guard lock(mutex_);
    Used sum = closed_;
    for (const Uses* handle : open_) sum.add(handle->read(spec));
    return sum;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<const Uses*> open_;
  Used closed_;
};

}  // namespace mv::ps
