#pragma once
// The shared memory of a dense shard, which other processes of the machine map and read without a message. Its layout:
//
//   SegmentHead    sizes, the clock of stale-synchronous tables, whether the table is destroyed
//   StripeGuard    one sequence lock for each stripe: odd while the server writes, the next even number afterwards
//   values         of the storage dtype (tensor::storage_dtype), from the next multiple of kValuesAlignment
//
// The server writes under its stripe locks and never waits for readers. A reader copies, and repeats the copy if the
// guard has changed.
//
// Other processes read it in their mappings (SegmentReader), or by a network that reads remote memory (api/table/remote_segment.hpp).
//
// A reader does not trust the segment, because another process writes it. Sizes come from the table's spec and are only
// compared with the head, of which each word is loaded once. Values and the clock are only data.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "base/shared_memory.hpp"
#include "shard/spec.hpp"

namespace mv::shard {

/// Whether servers keep the table's values in memory that other processes can map. Small keys are excluded: there can
/// be very many, each would take a descriptor and two pages, and most of their pulls follow a push and therefore are
/// sent as messages, after it.
inline bool is_mapped(const Spec& spec) { return !spec.is_keyed() && !is_small_key(spec) && !spec.is_on_device(); }

struct SegmentHead {
  static constexpr uint64_t kMagic = 0x4d56'5345'474d'0001;
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> elements;
  std::atomic<uint64_t> element_bytes;    ///< of the storage dtype
  std::atomic<uint64_t> stripe_elements;  ///< shard::stripe_elements(spec)
  alignas(64) std::atomic<uint64_t> clock;  ///< all workers' adds below it are applied; see Shard::publish_clock()
  std::atomic<uint32_t> destroyed;
  std::atomic<uint32_t> counts_gets;  ///< gets must reach the server: the updater keeps backups, or the part moves to another server
};
/// The words of a head, each loaded once.
struct HeadWords {
  static HeadWords of(const SegmentHead& head);
  /// Of a copy of it, wherever that lies.
  static HeadWords of(const std::byte* copy);
  uint64_t magic, elements, element_bytes, stripe_elements, clock;
  uint32_t destroyed, counts_gets;
};
struct alignas(64) StripeGuard {
  std::atomic<uint64_t> sequence;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// Sizes and offsets in the segment of a shard with `elements` elements of `spec`.
struct SegmentLayout {
  static constexpr size_t kValuesAlignment = 4096;
  SegmentLayout(const Spec& spec, uint64_t elements);
  /// Whether this is the head of a segment with this layout.
  bool fits(const HeadWords& head) const;
  uint64_t elements, element_bytes, stripe_elements, stripes;
  size_t guards_at, values_at, bytes;
};

/// The server's side of a segment.
class Segment {
 public:
  /// All zeros. Pages are touched when first written. MV_ENOMEM, MV_ESYSTEM.
  static base::Result<std::unique_ptr<Segment>> make(const Spec& spec, uint64_t elements);

  std::byte* values() const { return memory_->data() + layout_.values_at; }
  const std::shared_ptr<base::SharedMemory>& memory() const { return memory_; }
  SegmentHead& head() const { return *reinterpret_cast<SegmentHead*>(memory_->data()); }

  /// Call these around every write to a stripe's values, under the stripe's lock. Code that makes non-temporal stores
  /// must fence them itself.
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

/// Scope guard of a write to a stripe: calls begin_write() and end_write().
class StripeWrite {
 public:
  /// Does nothing for a null segment, which means that the shard is not shared.
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

/// The client's side: another process's segment, in whatever way it is read. Returns values in the table's dtype. Any thread.
class SegmentView {
 public:
  virtual ~SegmentView() = default;
  /// Elements and rows are numbered from 0 here; callers have checked them. False if the server wrote during each of
  /// kTries attempts; `out` then holds garbage. True: every stripe (for rows: every row that fits into a stripe) is as
  /// it was between two writes.
  virtual bool read(uint64_t first, uint64_t count, std::byte* out) const = 0;
  /// `first_row` is subtracted from each id.
  virtual bool read_rows(std::span<const int64_t> ids, int64_t first_row, std::byte* out) const = 0;
  /// Whether all workers' adds below this clock are applied.
  virtual bool has_reached(uint64_t clock) const = 0;
  virtual bool destroyed() const = 0;
  /// Gets must be sent to the server.
  virtual bool is_closed() const = 0;
  /// How long a read may wait for a network.
  virtual base::Nanos longest_wait() const { return base::Nanos{0}; }
  /// Before the first read.
  virtual void prepare() const {}

  static constexpr int kTries = 3;
};

/// One that is mapped read-only.
class SegmentReader final : public SegmentView {
 public:
  /// MV_EPROTOCOL unless the memory is a segment with exactly this layout.
  static base::Result<std::shared_ptr<SegmentReader>> open(std::shared_ptr<base::SharedMemory> memory, const Spec& spec,
                                                           uint64_t elements);

  bool read(uint64_t first, uint64_t count, std::byte* out) const override;
  bool read_rows(std::span<const int64_t> ids, int64_t first_row, std::byte* out) const override;
  uint64_t clock() const { return head().clock.load(std::memory_order_acquire); }
  bool has_reached(uint64_t clock) const override { return this->clock() >= clock; }
  bool destroyed() const override { return head().destroyed.load(std::memory_order_acquire) != 0; }
  bool is_closed() const override { return destroyed() || head().counts_gets.load(std::memory_order_acquire) != 0; }
  /// Prefaults all pages at once. Otherwise the first reads take a page fault for each.
  void prepare() const override;

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
