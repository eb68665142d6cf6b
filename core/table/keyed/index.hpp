#pragma once
// Where the records of a segment are, by the hashes of their ids.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "table/memory.hpp"

namespace mv::table {

/// An open-addressing table with linear probing. A word of 32 bits holds the number of a record and above it, as a tag, as many bits
/// of the hash as are left, so that a search hardly ever looks at another id's record. An entry's home is given by the upper bits of
/// its hash (below those that chose the segment): entries come in the order of their hashes, give or take a few places, however often
/// the table grows. Load is at most 0.8: 4 / 0.8 to 4 / 0.4 bytes an entry.
/// Its owner locks, but prefetch() is for any thread.
class Index {
 public:
  /// `skipped`: upper bits of a hash that all of its hashes share.
  explicit Index(unsigned skipped) : skipped_(skipped) {}

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

  void prefetch(uint64_t hash) const {
    const uintptr_t seen = seen_.load(std::memory_order_relaxed);
    const unsigned bits = seen % kAlignment;
    if (bits > 0) __builtin_prefetch(reinterpret_cast<const uint32_t*>(seen - bits) + ((hash << skipped_) >> (64 - bits)));
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
    if (words_ == nullptr || (used_ + dead_ + 1) * 5 > capacity() * 4) rebuild(hash_of);
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
    Index larger(skipped_);
    const bool grows = words_ == nullptr || (used_ + 1) * 5 > capacity() * 3;
    larger.allocate(words_ == nullptr ? kLeastBits : bits_ + (grows ? 1 : 0));
    for (size_t i = 0; i < capacity(); ++i) {
      if (const uint32_t found = slot(i); found != kNone) larger.put(hash_of(found), found);
    }
    take(larger);
  }
  void allocate(unsigned bits);
  void take(Index& other);

  unsigned skipped_, bits_ = 0;
  uint32_t* words_ = nullptr;
  size_t used_ = 0, dead_ = 0;
  Memory memory_;                     ///< of large tables
  std::unique_ptr<std::byte[]> small_;  ///< of small ones
  std::atomic<uintptr_t> seen_{0};
};

}  // namespace mv::table
