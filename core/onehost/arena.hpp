#pragma once
// What each rank of a group on one machine shows to the others: memory that it alone writes and they but read. So no process can
// tear another's memory, whatever happens to it and when.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/shared_memory.hpp"
#include "engine/collective/operation.hpp"

namespace mv::onehost {

/// Values up to here travel beside their header, and everybody reduces all of them: one hand-off instead of three.
inline constexpr size_t kInlineBytes = size_t{8} << 10;
/// What is worked on before others are told: large enough that telling costs nothing, small enough for the nearer caches.
inline constexpr size_t kBlockBytes = size_t{64} << 10;
/// Blocks under way of each rank that others have not read yet.
inline constexpr size_t kSlots = 4;
/// Room for the blocks of two ranks' allreduces, which they use in turns, so much later that both have the last one's no longer in
/// their own caches: writing to a line that another one has in its cache is slow.
inline constexpr size_t kRingBytes = size_t{2} << 20;
/// Arrays of one operation that a rank describes; more than these are copied, and can't be drained.
inline constexpr size_t kMostArrays = 4096;
/// Segments with tensors that a rank shows at the same time; what lies in further ones is copied.
inline constexpr size_t kOffers = 256;
inline constexpr size_t kMostRanks = 64;
inline constexpr size_t kLine = 64;

/// Why a rank takes part no more: it left between operations, it gave one up, or it has lost the rank of that number and more.
inline constexpr uint32_t kLeft = 1, kGaveUp = 2, kBecauseOf = 3;

/// They only grow, but for the sleeper's. Numbers of operations begin at 1. Of what is done block by block the lower bits count
/// the groups of blocks (see Plan), the upper ones are the operation's number.
struct alignas(kLine) Words {
  std::atomic<uint64_t> staged;    ///< blocks of this rank's values that others may read
  std::atomic<uint64_t> merged;    ///< blocks of results that it has made
  std::atomic<uint64_t> copied;    ///< blocks of everybody's results that it has read
  std::atomic<uint64_t> draining;  ///< the operation for which it waits to hear what the others do
  std::atomic<uint32_t> left;      ///< kLeft, kGaveUp or kBecauseOf + a rank
  alignas(kLine) std::atomic<uint32_t> bell;  ///< a futex: rung when somebody sleeps on this rank
  std::atomic<uint32_t> asleep_on;            ///< 1 + the rank whose bell this one sleeps by; 0: awake
  std::atomic<uint32_t> offers;               ///< changes with the list of segments
  std::atomic<int32_t> process;               ///< whose descriptors those are
  std::atomic<uint64_t> proof;                ///< a number that the others were told otherwise: they see this very memory
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

inline constexpr int kGroupBits = 24;
constexpr uint64_t progress(uint64_t operation, uint64_t groups) { return operation << kGroupBits | groups; }

/// What a rank brings to an operation. One cache line.
struct alignas(kLine) Header {
  std::atomic<uint64_t> posted;  ///< the operation that this is of, written last; everything before it is over for this rank
  uint64_t signature;  ///< of all that must be the same everywhere
  uint64_t root;
  uint32_t arrays;
  collective::Kind kind;
  math::Reduction reduction;
  bool draining;
  bool direct_in, direct_out;  ///< others can read its values, and its results, where they lie
};

/// One array of a header, and where it lies: a number of a segment, 0 for none, and a place in it.
struct Item {
  uint64_t count;
  uint32_t dtype;
  uint32_t in_segment, out_segment, note;
  uint64_t in_at, out_at;
};

/// A segment that a rank shows. Its descriptor is opened by way of /proc, and is the right one if it is of that file.
struct Offer {
  std::atomic<uint32_t> number;  ///< 0: none
  std::atomic<int32_t> descriptor;
  std::atomic<uint64_t> file;
};

/// A view of such memory. Headers, items and inline values are there twice, for operations in turns: nobody begins the one after
/// next before everybody has begun the next, and so has read this one's.
class Arena {
 public:
  Arena(std::shared_ptr<base::SharedMemory> memory, size_t ranks) : memory_(std::move(memory)), ranks_(ranks) {}
  static size_t bytes(size_t ranks) { return ring_at(ranks) + (ranks == 2 ? kRingBytes : 0); }

  Words& words() const { return *at<Words>(0); }
  Header& header(uint64_t operation) const { return at<Header>(kHeadersAt)[operation % 2]; }
  Item* items(uint64_t operation) const { return at<Item>(kItemsAt) + operation % 2 * kMostArrays; }
  std::byte* values(uint64_t operation) const { return at<std::byte>(kInlineAt) + operation % 2 * kInlineBytes; }
  /// Segments that this rank shows, by slot.
  Offer* offers() const { return at<Offer>(kOffersAt); }
  /// Those of `owner` that it has mapped, by slot.
  std::atomic<uint32_t>* mapped(size_t owner) const { return at<std::atomic<uint32_t>>(kMappedAt) + owner * kOffers; }
  /// Values for the owner of `lane`, on their way.
  std::byte* staging(uint64_t group, size_t lane) const {
    return at<std::byte>(staging_at(ranks_)) + (group % kSlots * ranks_ + lane) * kBlockBytes;
  }
  /// kRingBytes for the other one of two ranks.
  std::byte* ring() const { return at<std::byte>(ring_at(ranks_)); }
  std::byte* results(uint64_t group) const { return at<std::byte>(results_at(ranks_)) + group % kSlots * kBlockBytes; }

 private:
  static constexpr size_t kHeadersAt = sizeof(Words);
  static constexpr size_t kInlineAt = kHeadersAt + 2 * sizeof(Header);
  static constexpr size_t kOffersAt = kInlineAt + 2 * kInlineBytes;
  static constexpr size_t kItemsAt = kOffersAt + kOffers * sizeof(Offer);
  static constexpr size_t kMappedAt = kItemsAt + 2 * kMostArrays * sizeof(Item);
  static constexpr size_t kPage = 4096;
  static constexpr size_t staging_at(size_t ranks) { return (kMappedAt + ranks * kOffers * sizeof(uint32_t) + kPage - 1) / kPage * kPage; }
  static constexpr size_t results_at(size_t ranks) { return staging_at(ranks) + kSlots * ranks * kBlockBytes; }
  static constexpr size_t ring_at(size_t ranks) { return results_at(ranks) + kSlots * kBlockBytes; }

  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(memory_->data() + offset);
  }

  std::shared_ptr<base::SharedMemory> memory_;
  size_t ranks_;
};

}  // namespace mv::onehost
