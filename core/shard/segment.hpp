#pragma once
// The layout of a dense shard's shared memory, which other processes of the machine map and read without asking:
//
//   SegmentHead    sizes, the clock of stale-synchronous tables, whether the table is gone
//   StripeGuard    one for each stripe: odd while the server writes in it, another even number afterwards
//   values         of the storage dtype (tensor::storage_dtype), from the next multiple of kValuesAlignment
//
// The server writes under its stripe locks and never looks at readers; a reader copies, and copies again if the guard moved.
//
// A reader trusts no word of the segment, which is another process's: sizes come from the table's spec and are only compared with what the head
// says, each word of it loaded once; values and the clock are data.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.hpp"
#include "base/shared_memory.hpp"
#include "shard/spec.hpp"

namespace mv::shard {

/// Whether servers lay the table's values into memory that others may map. Not those of small keys: there may be very many of them, each
/// would take a descriptor and two pages, and most pulls follow a push, behind which they go as messages.
inline bool is_mapped(const Spec& spec) { return !spec.is_keyed() && !is_small_key(spec); }

struct SegmentHead {
  static constexpr uint64_t kMagic = 0x4d56'5345'474d'0001;
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> elements;
  std::atomic<uint64_t> element_bytes;    ///< of the storage dtype
  std::atomic<uint64_t> stripe_elements;  ///< shard::stripe_elements(spec)
  alignas(64) std::atomic<uint64_t> clock;  ///< all workers' adds below it are applied; see Shard::publish_clock()
  std::atomic<uint32_t> destroyed;
  std::atomic<uint32_t> counts_gets;  ///< the updater wants to know of gets, which therefore have to reach the server
};
struct alignas(64) StripeGuard {
  std::atomic<uint64_t> sequence;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// Where things lie in the segment of a shard with `elements` elements of `spec`.
struct SegmentLayout {
  static constexpr size_t kValuesAlignment = 4096;
  SegmentLayout(const Spec& spec, uint64_t elements);
  uint64_t elements, element_bytes, stripe_elements, stripes;
  size_t guards_at, values_at, bytes;
};

/// The server's side.
class Segment {
 public:
  /// All zeros. Pages are touched when first written. MV_ENOMEM, MV_ESYSTEM.
  static base::Result<std::unique_ptr<Segment>> make(const Spec& spec, uint64_t elements);

  std::byte* values() const { return memory_->data() + layout_.values_at; }
  const std::shared_ptr<base::SharedMemory>& memory() const { return memory_; }
  SegmentHead& head() const { return *reinterpret_cast<SegmentHead*>(memory_->data()); }

  /// Around every write to a stripe's values; under its lock. Non-temporal stores are to be fenced by whoever makes them.
  void begin_write(uint64_t stripe) const;
  void end_write(uint64_t stripe) const;

 private:
  Segment(SegmentLayout layout, std::shared_ptr<base::SharedMemory> memory) : layout_(layout), memory_(std::move(memory)) {}
  StripeGuard& guard(uint64_t stripe) const {
    return reinterpret_cast<StripeGuard*>(memory_->data() + layout_.guards_at)[stripe];
  }
  const SegmentLayout layout_;
  const std::shared_ptr<base::SharedMemory> memory_;
};

/// Holds a stripe open for writing.
class StripeWrite {
 public:
  /// Nothing for a null segment, which is a shard that nobody maps.
  StripeWrite(const Segment* segment, uint64_t stripe) : segment_(segment), stripe_(stripe) {
    if (segment_ != nullptr) segment_->begin_write(stripe_);
  }
  ~StripeWrite() {
    if (segment_ != nullptr) segment_->end_write(stripe_);
  }
  StripeWrite(const StripeWrite&) = delete;
  StripeWrite& operator=(const StripeWrite&) = delete;

 private:
  const Segment* const segment_;
  const uint64_t stripe_;
};

/// A client's side: somebody else's segment, mapped read-only. Values come out in the table's dtype. Any thread.
class SegmentReader {
 public:
  /// MV_EPROTOCOL unless the memory is a segment with exactly this layout.
  static base::Result<std::shared_ptr<SegmentReader>> open(std::shared_ptr<base::SharedMemory> memory, const Spec& spec,
                                                           uint64_t elements);

  /// Elements and rows are numbered from 0 here; callers have checked them. False if the server wrote all the while, kTries
  /// times: what `out` then holds is good for nothing. True: every stripe (of rows: every row that fits into one) is as it
  /// was between two writes.
  bool read(uint64_t first, uint64_t count, std::byte* out) const;
  /// `first_row` is subtracted from each id.
  bool read_rows(std::span<const int64_t> ids, int64_t first_row, std::byte* out) const;

  /// Maps the pages now, which the first reads would do one after the other.
  void populate() const;
  uint64_t clock() const { return head().clock.load(std::memory_order_acquire); }
  bool destroyed() const { return head().destroyed.load(std::memory_order_acquire) != 0; }
  /// Gets have to ask the server.
  bool is_closed() const { return destroyed() || head().counts_gets.load(std::memory_order_acquire) != 0; }

  static constexpr int kTries = 3;

 private:
  SegmentReader(const Spec& spec, SegmentLayout layout, std::shared_ptr<base::SharedMemory> memory);
  const SegmentHead& head() const { return *reinterpret_cast<const SegmentHead*>(memory_->data()); }
  template <typename Copy>
  bool guarded(uint64_t stripe, Copy copy) const;
  void copy_out(std::byte* out, uint64_t first, uint64_t count) const;

  const mv_dtype dtype_;
  const uint64_t cols_;
  const size_t out_bytes_;  ///< of an element of dtype_
  const SegmentLayout layout_;
  const std::shared_ptr<base::SharedMemory> memory_;
  const StripeGuard* const guards_;
  const std::byte* const values_;
};

}  // namespace mv::shard
