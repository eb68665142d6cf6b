#pragma once
// The hash index of a partition: finds records by the hashes of their ids.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/memory.hpp"
#include "base/prefetch.hpp"

namespace mv::shard {

/// Memory for the indexes of a shard. Indexes of one size share a region, so that even small ones can have huge pages.
/// All indexes grow at about the same time. A region is freed when its last index has left it. Any thread.
class IndexPool {
 public:
  explicit IndexPool(size_t users) : users_(users) {}
  /// 2^bits zero words for user `user`, which must have no others of this size. Throws std::bad_alloc.
  std::shared_ptr<uint32_t> take(unsigned bits, size_t user);
  size_t users() const { return users_; }

 private:
  const size_t users_;
  std::mutex mutex_;
  std::array<std::weak_ptr<base::Memory>, 32> regions_;
};

/// A hash table with open addressing and linear probing. A 32-bit word holds the number of a record in its low bits.
/// The remaining bits are a tag from the hash, so that a search rarely reads the record of another id. The upper bits
/// of the hash (below those that choose the partition) give an entry's home position. Entries are therefore ordered by
/// hash, except for a few positions, however often the table grows. The maximal load varies by index from 0.7 to 0.85,
/// so that the indexes of a shard do not all grow within one call: 5 to 11 bytes an entry, 7.5 on average. The owner
/// locks, but any thread may call prefetch().
class Index {
 public:
  /// `skipped`: the number of upper bits that all hashes of this index share. `user`: the number of this index in the
  /// pool.
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

  void prefetch(uint64_t hash) const {
    const uintptr_t seen = seen_.load(std::memory_order_relaxed);
    const unsigned bits = seen % kAlignment;
    if (bits > 0)
      base::prefetch(reinterpret_cast<const uint32_t*>(seen - bits) + ((hash << skipped_) >> (64 - bits)));
  }

  /// The position of the entry with this hash for which is_it(slot) is true, or capacity() if there is none.
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
  /// Finds entries by their tags alone, for prefetching. A copy of what that takes, which the compiler keeps in registers; valid until the index changes.
  class Tags {
   public:
    explicit Tags(const Index& index) : words_(index.words_), bits_(index.bits_), skipped_(index.skipped_) {}
    /// The slot of the first entry whose tag fits this hash, or kNone.
    uint32_t likely(uint64_t hash) const {
      if (words_ == nullptr) return kNone;
      const uint32_t low = (uint32_t{1} << bits_) - 1, tag = static_cast<uint32_t>(hash) & ~low;
      size_t at = (hash << skipped_) >> (64 - bits_);
      if (at + kAtOnce <= size_t{low} + 1 && tag != (kDead & ~low)) {
        if (const unsigned fits = fitting(words_ + at, ~low, tag); fits != 0) return (words_[at + static_cast<unsigned>(std::countr_zero(fits))] & low) - 1;
        at += kAtOnce;
      }
      for (at &= low;; at = (at + 1) & low) {
        const uint32_t word = words_[at];
        if (word == kEmpty) return kNone;
        if ((word & ~low) == tag && word != kDead) return (word & low) - 1;
      }
    }

   private:
    static constexpr size_t kAtOnce = 8;
    /// A bit for each word of the next kAtOnce whose tag fits. Without branches: how far an entry is from its home can't be predicted. An empty word
    /// fits the tag 0, and stands for no slot.
    static unsigned fitting(const uint32_t* words, uint32_t high, uint32_t tag) {
      unsigned fits = 0;
#ifdef __SSE2__
      const __m128i mask = _mm_set1_epi32(static_cast<int>(high)), wanted = _mm_set1_epi32(static_cast<int>(tag));
      for (unsigned i = 0; i < kAtOnce; i += 4) {
        const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(words + i));
        fits |= static_cast<unsigned>(_mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(_mm_and_si128(some, mask), wanted)))) << i;
      }
#else
      for (unsigned i = 0; i < kAtOnce; ++i) fits |= static_cast<unsigned>((words[i] & high) == tag) << i;
#endif
      return fits;
    }

    const uint32_t* words_;
    unsigned bits_, skipped_;
  };
  /// The number of entries that can be inserted before the table has to grow.
  size_t room() const { return most_ - std::min(most_, used_ + dead_); }
  /// Makes room for `more` entries; calls hash_of(slot) for all others. Throws std::bad_alloc, and changes nothing then.
  template <typename HashOf>
  void reserve(size_t more, const HashOf& hash_of) {
    if (room() < more) rebuild(more, hash_of);
  }
  /// Inserts a new entry. If the table has to grow, it calls hash_of(slot) for all others.
  template <typename HashOf>
  void insert(uint64_t hash, uint32_t slot, const HashOf& hash_of) {
    reserve(1, hash_of);
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
  static constexpr size_t kAlignment = 64;  ///< of words_, so that their address and bits_ fit into one word

  uint32_t mask() const { return (uint32_t{1} << bits_) - 1; }
  void put(uint64_t hash, uint32_t slot) {
    size_t at = home(hash);
    while (words_[at] != kEmpty && words_[at] != kDead) at = (at + 1) & mask();
    if (words_[at] == kDead) --dead_;
    words_[at] = (static_cast<uint32_t>(hash) & ~mask()) | (slot + 1);
  }
  /// The most entries of a table of this size.
  size_t most_of(unsigned bits) const { return ((size_t{1} << bits) * (180 + user_ * 38 / pool_->users())) >> 8; }
  /// Rebuilds the table without tombstones, and larger if it has to be for `more` entries.
  template <typename HashOf>
  void rebuild(size_t more, const HashOf& hash_of) {
    std::vector<uint32_t> slots;
    slots.reserve(used_);
    for (size_t i = 0; i < capacity(); ++i) {
      if (const uint32_t found = slot(i); found != kNone) slots.push_back(found);
    }
    const bool grows = used_ >= most_ / 4 * 3;  // otherwise there are many tombstones
    unsigned bits = words_ == nullptr ? kLeastBits : bits_ + (grows ? 1 : 0);
    while (most_of(bits) < used_ + more) ++bits;
    clear(bits);
    std::array<uint64_t, 64> hashes;  // several at a time: their records are far apart in memory
    for (size_t first = 0; first < slots.size(); first += hashes.size()) {
      const auto some = std::span(slots).subspan(first, std::min(hashes.size(), slots.size() - first));
      for (size_t i = 0; i < some.size(); ++i) hashes[i] = hash_of(some[i]);
      for (size_t i = 0; i < some.size(); ++i) put(hashes[i], some[i]);
    }
  }
  /// Makes all words empty, and changes their number to 2^bits.
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
