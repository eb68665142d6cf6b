#pragma once
// The memory that each rank of a group on one machine shares with the others. Only its owner writes it; the others map
// it read-only.
//
// A rank does not trust what it reads here: the owner may be broken and change any word at any time. Therefore every
// word of another rank is an atomic, is loaded once into a local variable, and is checked before it is used. The
// description of an operation is copied as a whole first: Announcement, Described. Values are only ever data: no value
// decides where anything is read or written.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/shared_memory.hpp"
#include "engine/collective/operation.hpp"

namespace mv::intranode {

/// Values up to this size lie beside their header, and every rank reduces all of them: one hand-off instead of three. An
/// all-reduce measures whether that is faster (algorithms.hpp), up to kInlineRoom; the others have no trial.
inline constexpr size_t kInlineBytes = size_t{8} << 10, kInlineRoom = size_t{32} << 10;
/// The unit of progress: large enough that publishing it is cheap, small enough for the nearer caches. All-reduces try
/// smaller and larger blocks (algorithms.hpp).
inline constexpr size_t kBlockBytes = size_t{64} << 10;
/// Blocks of each rank in flight, which the other ranks have not read yet.
inline constexpr size_t kSlots = 4;
/// Room for the blocks of allreduces of two ranks, used in turn. A place is reused so late that its last block has
/// left the ranks' own caches: writing to a line in another processor's cache is slow.
inline constexpr size_t kRingBytes = size_t{2} << 20;
/// Arrays of one operation that a rank describes. An operation with more is copied, and ranks can't drain at it.
inline constexpr size_t kMostArrays = 4096;
/// Segments with tensors that a rank exports at the same time; values in further ones are copied.
inline constexpr size_t kExports = 256;
inline constexpr size_t kMostRanks = 64;
inline constexpr size_t kLine = 64;

/// Why a rank no longer takes part: it left between operations, it gave one up, or it lost a rank (kBecauseOf + that
/// rank).
inline constexpr uint32_t kLeft = 1, kGaveUp = 2, kBecauseOf = 3;

/// Counters of a correct rank are monotonic, except asleep_on. Operation numbers begin at 1. In staged, merged and
/// copied, the lower bits count groups of blocks (see Plan), and the upper bits are the operation's number.
struct alignas(kLine) Words {
  std::atomic<uint64_t> staged;    ///< blocks of this rank's values that others may read
  std::atomic<uint64_t> merged;    ///< blocks of results that it has made
  std::atomic<uint64_t> copied;    ///< blocks of all ranks' results that it has read
  std::atomic<uint64_t> draining;  ///< the operation for which it waits to learn what the others do
  std::atomic<uint32_t> left;      ///< kLeft, kGaveUp or kBecauseOf + a rank
  alignas(kLine) std::atomic<uint32_t> bell;  ///< a futex: rung when a rank sleeps on this one
  std::atomic<uint32_t> asleep_on;            ///< 1 + the rank on whose bell this one sleeps; 0: awake
  std::atomic<uint32_t> exports;               ///< changes with the list of segments
  std::atomic<int32_t> process;               ///< the owner of the exported descriptors
  std::atomic<uint64_t> proof;                ///< a number that the others also receive by a message: it proves that they see this memory
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

inline constexpr int kGroupBits = 24;
constexpr uint64_t progress(uint64_t operation, uint64_t groups) { return operation << kGroupBits | groups; }

/// A rank's announcement of an operation: a copy of its Header.
struct Announcement {
  uint64_t signature = 0;  ///< a hash of all that must be the same on all ranks
  uint64_t root = 0;
  uint32_t label = 0;
  uint32_t arrays = 0;
  collective::Kind kind = collective::Kind::kBarrier;  ///< from another rank: any value of its type
  math::Reduction reduction = math::Reduction::kSum;   ///< likewise
  bool draining = false;
  bool shown_in = false, shown_out = false;  ///< others can read its values, and its results, in place
  bool in_place = false;   ///< its results overwrite its values
  uint32_t took = 0;       ///< Choices::to_tell()
  bool vote = false;       ///< collective::Operation::vote
};

/// An announcement as it lies in memory. One cache line.
struct alignas(kLine) Header {
  std::atomic<uint64_t> posted;  ///< the operation's number, written last; all operations before it have ended for this rank
  std::atomic<uint64_t> signature, root;
  std::atomic<uint32_t> label, arrays;
  std::atomic<uint32_t> about;  ///< kind, reduction, flags
  std::atomic<uint32_t> took;

  void write(const Announcement& what) {
    signature.store(what.signature, std::memory_order_relaxed);
    root.store(what.root, std::memory_order_relaxed);
    label.store(what.label, std::memory_order_relaxed);
    arrays.store(what.arrays, std::memory_order_relaxed);
    took.store(what.took, std::memory_order_relaxed);
    const uint32_t flags = (what.draining ? 1U : 0U) | (what.shown_in ? 2U : 0U) | (what.shown_out ? 4U : 0U) | (what.in_place ? 8U : 0U) | (what.vote ? 16U : 0U);
    about.store(static_cast<uint32_t>(what.kind) | static_cast<uint32_t>(what.reduction) << 8 | flags << 16, std::memory_order_relaxed);
  }
  /// Call after `posted` was seen. Reads each word once.
  Announcement read() const {
    const uint32_t all = about.load(std::memory_order_relaxed);
    return {signature.load(std::memory_order_relaxed), root.load(std::memory_order_relaxed), label.load(std::memory_order_relaxed),
            arrays.load(std::memory_order_relaxed),
            static_cast<collective::Kind>(all & 0xff), static_cast<math::Reduction>(all >> 8 & 0xff),
            (all >> 16 & 1) != 0, (all >> 16 & 2) != 0, (all >> 16 & 4) != 0, (all >> 16 & 8) != 0, took.load(std::memory_order_relaxed), (all >> 16 & 16) != 0};
  }
};

/// Where other ranks can read bytes: the owner's number of a segment, 0 for none, and an offset in it.
struct Location {
  uint32_t segment = 0;
  uint64_t at = 0;
};

/// One array of an operation: a copy of its Item.
struct Described {
  uint64_t count = 0;
  uint32_t dtype = 0, note = 0;  ///< from another rank: any value
  Location in, out;
};

/// One array as it lies in memory. Announcement::arrays is the number of items.
struct Item {
  std::atomic<uint64_t> count;
  std::atomic<uint32_t> dtype, in_segment, out_segment, note;
  std::atomic<uint64_t> in_at, out_at;

  void write(const Described& what) {
    count.store(what.count, std::memory_order_relaxed);
    dtype.store(what.dtype, std::memory_order_relaxed);
    note.store(what.note, std::memory_order_relaxed);
    in_segment.store(what.in.segment, std::memory_order_relaxed);
    in_at.store(what.in.at, std::memory_order_relaxed);
    out_segment.store(what.out.segment, std::memory_order_relaxed);
    out_at.store(what.out.at, std::memory_order_relaxed);
  }
  Described read() const {
    return {count.load(std::memory_order_relaxed), dtype.load(std::memory_order_relaxed), note.load(std::memory_order_relaxed),
            {in_segment.load(std::memory_order_relaxed), in_at.load(std::memory_order_relaxed)},
            {out_segment.load(std::memory_order_relaxed), out_at.load(std::memory_order_relaxed)}};
  }
};

/// A segment that a rank exports. The others open its descriptor through /proc, and check that it is this file.
struct Export {
  std::atomic<uint32_t> number;  ///< 0: none
  std::atomic<int32_t> descriptor;
  std::atomic<uint64_t> file;
};

/// A view of this memory. Headers, items and inline values exist twice, and operations alternate between them: no rank
/// begins the operation after next before all ranks have begun the next one, and have therefore read this one's.
class SharedRegion {
 public:
  SharedRegion(std::shared_ptr<base::SharedMemory> memory, size_t ranks) : memory_(std::move(memory)), ranks_(ranks) {}
  static size_t bytes(size_t ranks) { return ring_at(ranks) + (ranks == 2 ? kRingBytes : 0); }

  Words& words() const { return *at<Words>(0); }
  Header& header(uint64_t operation) const { return at<Header>(kHeadersAt)[operation % 2]; }
  Item* items(uint64_t operation) const { return at<Item>(kItemsAt) + operation % 2 * kMostArrays; }
  std::byte* values(uint64_t operation) const { return at<std::byte>(kInlineAt) + operation % 2 * kInlineRoom; }
  /// Segments that this rank exports, by slot.
  Export* exports() const { return at<Export>(kExportsAt); }
  /// Segments of `owner` that this rank has mapped, by slot.
  std::atomic<uint32_t>* mapped(size_t owner) const { return at<std::atomic<uint32_t>>(kMappedAt) + owner * kExports; }
  /// Staged values for the owner of `channel`.
  std::byte* staging(uint64_t group, size_t channel) const {
    return at<std::byte>(staging_at(ranks_)) + (group % kSlots * ranks_ + channel) * kBlockBytes;
  }
  /// kRingBytes of staged values for the other of two ranks.
  std::byte* ring() const { return at<std::byte>(ring_at(ranks_)); }
  std::byte* results(uint64_t group) const { return at<std::byte>(results_at(ranks_)) + group % kSlots * kBlockBytes; }

 private:
  static constexpr size_t kHeadersAt = sizeof(Words);
  static constexpr size_t kInlineAt = kHeadersAt + 2 * sizeof(Header);
  static constexpr size_t kExportsAt = kInlineAt + 2 * kInlineRoom;
  static constexpr size_t kItemsAt = kExportsAt + kExports * sizeof(Export);
  static constexpr size_t kMappedAt = kItemsAt + 2 * kMostArrays * sizeof(Item);
  static constexpr size_t kPage = 4096;
  static constexpr size_t staging_at(size_t ranks) { return (kMappedAt + ranks * kExports * sizeof(uint32_t) + kPage - 1) / kPage * kPage; }
  static constexpr size_t results_at(size_t ranks) { return staging_at(ranks) + kSlots * ranks * kBlockBytes; }
  static constexpr size_t ring_at(size_t ranks) { return results_at(ranks) + kSlots * kBlockBytes; }

  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(memory_->data() + offset);
  }

  std::shared_ptr<base::SharedMemory> memory_;
  size_t ranks_;
};

}  // namespace mv::intranode
