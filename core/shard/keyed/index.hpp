#pragma once
// Where the records of a segment are, by the hashes of their ids.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/memory.hpp"

namespace mv::shard {

/// Memory for the indexes of a shard: those of one size share a region, which may have huge pages however small each of
/// them is. They all grow at about the same time; a region goes when the last one has left it. Any thread.
class IndexPool {
 public:
  explicit IndexPool(size_t users) : users_(users) {}
  /// Zeros for 2^bits words of user `user`, who has no others of this size. Throws std::bad_alloc.
  std::shared_ptr<uint32_t> take(unsigned bits, size_t user);
  size_t users() const { return users_; }

 private:
  const size_t users_;
  std::mutex mutex_;
  std::array<std::weak_ptr<base::Memory>, 32> regions_;
};

/// An open-addressing table with linear probing. A word of 32 bits holds the number of a record and above it, as a tag,
/// as many bits of the hash as are left, so that a search hardly ever looks at another id's record. An entry's home is
/// given by the upper bits of its hash (below those that chose the part): entries come in the order of their hashes,
/// give or take a few places, however often the table grows. Load is at most 0.7 to 0.85, so that not all indexes of a
/// shard grow within one call: 5 to 11 bytes an entry, 7.5 on average.
/// Its owner locks, but prefetch() is for any thread.
class Index {
 public:
  /// `skipped`: upper bits of a hash that all of its hashes share. `user`: its number in the pool.
  Index(unsigned skipped, std::shared_ptr<IndexPool> pool, size_t user)
      : skipped_(skipped), pool_(std::move(pool)), user_(user) {}

  static constexpr uint32_t kNone = UINT32_MAX;
  /// Positions are 0 .. capacity() - 1; the one after the last is the first.
  size_t capacity() const { return words_ != nullptr ? size_t{1} << bits_ : 0; }
  size_t size() const { return used_; }
  size_t bytes() const { return capacity() * sizeof(uint32_t); }

  size_t home(uint64_t hash) const { return (hash << skipped_) >> (64 - bits_); }
  bool is_empty(size_t position) const { return words_[position] == kEmpty; }
  /// The record at a position, or kNone.
  uint32_t slot(size_t position) const {
    const uint32_t word = words_[position];
    return word == kEmpty || word == kDead ? kNone : (word & mask()) - 1;
  }

  [[gnu::always_inline]] void prefetch(uint64_t hash) const {
    const uintptr_t seen = seen_.load(std::memory_order_relaxed);
    const unsigned bits = seen % kAlignment;
    if (bits > 0)
      __builtin_prefetch(reinterpret_cast<const uint32_t*>(seen - bits) + ((hash << skipped_) >> (64 - bits)));
  }

  /// The position of the entry with this hash for whose slot is_it(slot) holds, or capacity() if there is none.
  template <typename IsIt>
  size_t find(uint64_t hash, const IsIt& is_it) const {
    if (words_ == nullptr) return 0;
    const uint32_t low = mask(), tag = static_cast<uint32_t>(hash) & ~low;
    for (size_t at = home(hash);; at = (at + 1) & low) {
      const uint32_t word = words_[at];
      if (word == kEmpty) return capacity();
      if ((word & ~low) == tag && word != kDead && is_it((word & low) - 1)) return at;
    }
  }
  /// The slot of the first entry that looks like it has this hash, or kNone: for fetching ahead.
  uint32_t likely(uint64_t hash) const {
    if (words_ == nullptr) return kNone;
    const uint32_t low = mask(), tag = static_cast<uint32_t>(hash) & ~low;
    for (size_t at = home(hash);; at = (at + 1) & low) {
      const uint32_t word = words_[at];
      if (word == kEmpty) return kNone;
      if ((word & ~low) == tag && word != kDead) return (word & low) - 1;
    }
  }
  /// Adds an entry that is not there yet. hash_of(slot) is asked for all others where the table has to grow.
  template <typename HashOf>
  void insert(uint64_t hash, uint32_t slot, const HashOf& hash_of) {
    if (used_ + dead_ >= most_) rebuild(hash_of);
    put(hash, slot);
    ++used_;
  }
  void erase(size_t position) {
    const bool ends_a_run = words_[(position + 1) & mask()] == kEmpty;
    words_[position] = ends_a_run ? kEmpty : kDead;
    dead_ += ends_a_run ? 0 : 1;
    --used_;
  }

 private:
  static constexpr uint32_t kEmpty = 0, kDead = UINT32_MAX;
  static constexpr unsigned kLeastBits = 5;
  static constexpr size_t kAlignment = 64;  ///< of words_: their address and bits_ fit into one word

  uint32_t mask() const { return (uint32_t{1} << bits_) - 1; }
  void put(uint64_t hash, uint32_t slot) {
    size_t at = home(hash);
    while (words_[at] != kEmpty && words_[at] != kDead) at = (at + 1) & mask();
    if (words_[at] == kDead) --dead_;
    words_[at] = (static_cast<uint32_t>(hash) & ~mask()) | (slot + 1);
  }
  /// Larger, or only without what was erased.
  template <typename HashOf>
  void rebuild(const HashOf& hash_of) {
    std::vector<uint32_t> slots;
    slots.reserve(used_);
    for (size_t i = 0; i < capacity(); ++i) {
      if (const uint32_t found = slot(i); found != kNone) slots.push_back(found);
    }
    const bool grows = used_ >= most_ / 4 * 3;  // else there is much to clear away
    clear(words_ == nullptr ? kLeastBits : bits_ + (grows ? 1 : 0));
    std::array<uint64_t, 64> hashes;  // of several at a time: they come from records that are far apart
    for (size_t first = 0; first < slots.size(); first += hashes.size()) {
      const auto some = std::span(slots).subspan(first, std::min(hashes.size(), slots.size() - first));
      for (size_t i = 0; i < some.size(); ++i) hashes[i] = hash_of(some[i]);
      for (size_t i = 0; i < some.size(); ++i) put(hashes[i], some[i]);
    }
  }
  /// Empty words, perhaps more of them.
  void clear(unsigned bits);

  const unsigned skipped_;
  unsigned bits_ = 0;
  const std::shared_ptr<IndexPool> pool_;
  const size_t user_;
  std::shared_ptr<uint32_t> memory_;
  uint32_t* words_ = nullptr;
  size_t used_ = 0, dead_ = 0, most_ = 0;
  std::atomic<uintptr_t> seen_{0};  ///< words_ and bits_, for prefetch()
};

}  // namespace mv::shard
