#include "shard/segment.hpp"

#include <sys/mman.h>

#include <cstddef>
#include <cstring>

#include "base/prefetch.hpp"
#include "base/relax.hpp"
#include "base/sequence_lock.hpp"
#include "base/spare_descriptors.hpp"
#include "math/kernels.hpp"

namespace mv::shard {

namespace {

/// How often a reader polls for the end of one write before the attempt fails: longer than the write of a stripe takes.
constexpr int kLooks = 4096;
/// How many rows ahead the reader prefetches.
constexpr size_t kAhead = 12;

size_t aligned(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

SegmentLayout::SegmentLayout(const Spec& spec, uint64_t elements)
    : elements(elements),
      element_bytes(tensor::dtype_bytes(tensor::storage_dtype(spec.dtype))),
      stripe_elements(shard::stripe_elements(spec)),
      stripes((elements + stripe_elements - 1) / stripe_elements),
      guards_at(aligned(sizeof(SegmentHead), alignof(StripeGuard))),
      values_at(aligned(guards_at + stripes * sizeof(StripeGuard), kValuesAlignment)),
      bytes(values_at + elements * element_bytes) {}

HeadWords HeadWords::of(const SegmentHead& head) {
  return {head.magic, head.elements, head.element_bytes, head.stripe_elements, head.clock, head.destroyed, head.counts_gets};
}

HeadWords HeadWords::of(const std::byte* copy) {
  HeadWords words{};
  const auto take = [copy](auto& word, size_t at) { std::memcpy(&word, copy + at, sizeof word); };
  take(words.magic, offsetof(SegmentHead, magic));
  take(words.elements, offsetof(SegmentHead, elements));
  take(words.element_bytes, offsetof(SegmentHead, element_bytes));
  take(words.stripe_elements, offsetof(SegmentHead, stripe_elements));
  take(words.clock, offsetof(SegmentHead, clock));
  take(words.destroyed, offsetof(SegmentHead, destroyed));
  take(words.counts_gets, offsetof(SegmentHead, counts_gets));
  return words;
}

bool SegmentLayout::fits(const HeadWords& head) const {
  return head.magic == SegmentHead::kMagic && head.elements == elements && head.element_bytes == element_bytes && head.stripe_elements == stripe_elements;
}

// ------------------------------------------------------------ writing

base::Result<std::unique_ptr<Segment>> Segment::make(const Spec& spec, uint64_t elements) {
  const SegmentLayout layout(spec, elements);
  auto memory = base::SharedMemory::make("polyverso-table", layout.bytes);
  if (!memory.ok()) return memory.status();
  if (const rlim_t most = base::first_spare_descriptor(); static_cast<rlim_t>(memory.value()->fd()) >= most)
    return base::error(MV_ESYSTEM, "no shared memory: this process has {} file descriptors open, half of its limit (ulimit -n)", most);
  std::unique_ptr<Segment> segment(new Segment(layout, std::move(memory).value()));
  SegmentHead& head = segment->head();
  head.elements = layout.elements;
  head.element_bytes = layout.element_bytes;
  head.stripe_elements = layout.stripe_elements;
  head.magic = SegmentHead::kMagic;
  return segment;
}

void Segment::begin_write(uint64_t stripe) const {
  std::atomic<uint64_t>& sequence = guard(stripe).sequence;
  sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  base::sequence_fence();
}

void Segment::end_write(uint64_t stripe) const {
  std::atomic<uint64_t>& sequence = guard(stripe).sequence;
  sequence.store(sequence.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

// ------------------------------------------------------------ reading

base::Result<std::shared_ptr<SegmentReader>> SegmentReader::open(std::shared_ptr<base::SharedMemory> memory,
                                                                 const Spec& spec, uint64_t elements) {
  const SegmentLayout layout(spec, elements);
  if (memory->bytes() >= layout.bytes && layout.fits(HeadWords::of(*reinterpret_cast<const SegmentHead*>(memory->data()))))
    return std::shared_ptr<SegmentReader>(new SegmentReader(spec, layout, std::move(memory)));
  return base::error(MV_EPROTOCOL,
                     "table \"{}\": a server offers {} bytes of shared memory, which do not match its {} elements",
                     spec.name, memory->bytes(), elements);
}

SegmentReader::SegmentReader(const Spec& spec, SegmentLayout layout, std::shared_ptr<base::SharedMemory> memory)
    : dtype_(spec.dtype),
      cols_(spec.cols),
      out_bytes_(spec.element_bytes()),
      layout_(layout),
      memory_(std::move(memory)),
      guards_(reinterpret_cast<const StripeGuard*>(memory_->data() + layout_.guards_at)),
      values_(memory_->data() + layout_.values_at) {}

void SegmentReader::prepare() const {
#ifdef MADV_POPULATE_READ  // since Linux 5.14; without it, or if it fails, the reads fault the pages in
  madvise(memory_->data(), layout_.bytes, MADV_POPULATE_READ);
#endif
}

/// Runs `copy` until no write overlapped it, at most kTries times. False if all attempts failed.
template <typename Copy>
bool SegmentReader::guarded(uint64_t stripe, Copy copy) const {
  const std::atomic<uint64_t>& sequence = guards_[stripe].sequence;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    uint64_t before = sequence.load(std::memory_order_acquire);
    for (int look = 0; before % 2 != 0 && look < kLooks; ++look) {
      base::relax();
      before = sequence.load(std::memory_order_acquire);
    }
    if (before % 2 != 0) continue;
    {
      [[maybe_unused]] const base::RacyReads racy;
      copy();
    }
    base::sequence_fence();
    if (sequence.load(std::memory_order_relaxed) == before) return true;
  }
  return false;
}

void SegmentReader::copy_out(std::byte* out, uint64_t first, uint64_t count) const {
  math::load_bytes(dtype_, values_ + first * layout_.element_bytes, out, count);
}

bool SegmentReader::read(uint64_t first, uint64_t count, std::byte* out) const {
  for (uint64_t done = 0; done < count;) {
    const uint64_t from = first + done, stripe = from / layout_.stripe_elements;
    const uint64_t share = std::min(count - done, (stripe + 1) * layout_.stripe_elements - from);
    if (!guarded(stripe, [&] { copy_out(out + done * out_bytes_, from, share); })) return false;
    done += share;
  }
  return true;
}

bool SegmentReader::read_rows(std::span<const int64_t> ids, int64_t first_row, std::byte* out) const {
  const uint64_t row_bytes = cols_ * out_bytes_, stored_row_bytes = cols_ * layout_.element_bytes;
  const auto row_of = [&](size_t i) { return static_cast<uint64_t>(ids[i] - first_row); };
  const bool cut = cols_ > layout_.stripe_elements;  // a row spans several stripes
  const uint64_t stripe_rows = cut ? 1 : layout_.stripe_elements / cols_;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + kAhead < ids.size()) {
      const std::byte* ahead = values_ + row_of(i + kAhead) * stored_row_bytes;
      for (size_t at = 0; at < std::min<size_t>(stored_row_bytes, 512); at += 64) base::prefetch(ahead + at);
    }
    std::byte* to = out + i * row_bytes;
    const uint64_t row = row_of(i), element = row * cols_;
    const bool whole =
        cut ? read(element, cols_, to) : guarded(row / stripe_rows, [&] { copy_out(to, element, cols_); });
    if (!whole) return false;
  }
  return true;
}

}  // namespace mv::shard
