#include "engine/gossip/snapshot.hpp"

#include <algorithm>
#include <cstring>

#include "math/copy.hpp"
#include "tensor/dtype.hpp"

namespace mv::gossip {

namespace {

constexpr uint64_t kSlotHeadsAt = aligned_part(sizeof(SnapshotHead));
constexpr uint64_t kValuesAt = 4096;
static_assert(kSlotHeadsAt + kVersions * sizeof(SlotHead) <= kValuesAt);

uint64_t memory_bytes(uint64_t slot_bytes) { return kValuesAt + kVersions * slot_bytes; }

/// Larger arrays would mostly be evicted from the caches before a peer reads them.
constexpr uint64_t kLargeArray = 1 << 20;
}  // namespace

uint64_t ArraySpec::bytes() const { return count * tensor::dtype_bytes(dtype); }

bool ArraySpec::fits(const ArraySpec& other) const {
  return count == other.count && dtype == other.dtype && (shape == 0 || other.shape == 0 || shape == other.shape);
}

bool parts_fit(std::span<const ArraySpec> some, std::span<const ArraySpec> others) {
  return std::ranges::equal(some, others, [](const ArraySpec& one, const ArraySpec& other) { return one.fits(other); });
}

uint32_t shape_number(std::span<const int64_t> lengths) {
  if (lengths.size() < 2) return 0;
  uint32_t number = 2166136261;  // FNV-1a, over the bytes of the lengths
  for (const int64_t length : lengths)
    for (int shift = 0; shift < 64; shift += 8) number = (number ^ (static_cast<uint64_t>(length) >> shift & 0xff)) * 16777619;
  return std::max<uint32_t>(number, 1);
}

base::Result<uint64_t> layout_bytes(std::span<const ArraySpec> parts) {
  if (parts.size() > kMostParts) return base::error(MV_EPROTOCOL, "a snapshot of {} arrays; at most {} are possible", parts.size(), kMostParts);
  uint64_t bytes = 0;
  for (const ArraySpec& part : parts) {
    if (tensor::dtype_bytes(part.dtype) == 0) return base::error(MV_EPROTOCOL, "a snapshot with an array of unknown dtype {}", part.dtype);
    if (part.count > kMostBytes) return base::error(MV_EPROTOCOL, "a snapshot with an array of {} elements", part.count);
    bytes = aligned_part(bytes) + part.bytes();
    if (bytes > kMostBytes) return base::error(MV_EPROTOCOL, "a snapshot of more than {} bytes", kMostBytes);
  }
  return bytes;
}

std::string describe_parts(std::span<const ArraySpec> parts) {
  constexpr size_t kShown = 4;
  std::string text;
  for (size_t i = 0; i < std::min(parts.size(), kShown); ++i)
    text += fmt::format("{}{} x {}", i == 0 ? "" : ", ", tensor::dtype_name(parts[i].dtype), parts[i].count);
  return fmt::format("{} array{} ({}{})", parts.size(), parts.size() == 1 ? "" : "s", text, parts.size() > kShown ? ", …" : "");
}

std::vector<uint64_t> part_starts(std::span<const ArraySpec> parts) {
  std::vector<uint64_t> starts;
  uint64_t at = 0;
  for (const ArraySpec& part : parts) {
    starts.push_back(aligned_part(at));
    at = starts.back() + part.bytes();
  }
  return starts;
}

// ------------------------------------------------------------ reading

base::Result<std::shared_ptr<SnapshotReader>> SnapshotReader::open(std::shared_ptr<base::SharedMemory> memory) {
  if (memory->bytes() >= kValuesAt) {
    const auto& head = *reinterpret_cast<const SnapshotHead*>(memory->data());
    const uint64_t slot_bytes = head.slot_bytes.load();
    if (head.magic.load() == SnapshotHead::kMagic && slot_bytes <= 2 * kMostBytes && slot_bytes % kPartAlignment == 0 &&
        memory->bytes() >= memory_bytes(slot_bytes))
      return std::shared_ptr<SnapshotReader>(new SnapshotReader(std::move(memory), slot_bytes));
  }
  return base::error(MV_EPROTOCOL, "a peer offers {} bytes of shared memory that contain no snapshots", memory->bytes());
}

const SlotHead& SnapshotReader::slot(size_t number) const { return reinterpret_cast<const SlotHead*>(memory_->data() + kSlotHeadsAt)[number]; }

const std::byte* SnapshotReader::values(size_t number) const { return memory_->data() + kValuesAt + number * slot_bytes_; }

size_t SnapshotReader::slot_of(uint64_t version) const {
  size_t number = version != 0 ? 0 : kVersions;
  while (number < kVersions && slot(number).sequence.load(std::memory_order_acquire) != 2 * version) ++number;
  return number;
}

bool SnapshotReader::holds(uint64_t version) const { return slot_of(version) != kVersions; }

std::optional<Description> SnapshotReader::describe(uint64_t version) const {
  const size_t number = slot_of(version);
  if (number == kVersions) return std::nullopt;
  const SlotHead& from = slot(number);
  const uint64_t bytes = from.bytes.load(std::memory_order_relaxed), parts = from.parts.load(std::memory_order_relaxed);
  if (bytes > slot_bytes_ || parts > kMostParts || aligned_part(bytes) + parts * sizeof(ArraySpec) > slot_bytes_) return std::nullopt;
  Description found{version, from.clock.load(std::memory_order_relaxed), from.loss.load(std::memory_order_relaxed), bytes, std::vector<ArraySpec>(parts)};
  {
    [[maybe_unused]] const base::RacyReads racy;
    if (parts > 0) std::memcpy(found.parts.data(), values(number) + aligned_part(bytes), parts * sizeof(ArraySpec));
  }
  base::sequence_fence();
  if (from.sequence.load(std::memory_order_relaxed) != 2 * version) return std::nullopt;
  return found;
}

bool SnapshotReader::read(uint64_t version, uint64_t first, std::span<std::byte> out) const {
  return read(version, first, out.size(), [out](const std::byte* from) {
    if (!out.empty()) std::memcpy(out.data(), from, out.size());
  });
}

// ------------------------------------------------------------ publishing

SlotHead& Publisher::slot(size_t number) const { return reinterpret_cast<SlotHead*>(building_->data() + kSlotHeadsAt)[number]; }
std::byte* Publisher::values() const { return building_->data() + kValuesAt + slot_ * slot_bytes_; }

/// Chooses the oldest slot that is neither the newest nor held, and marks it as being written. The mutex keeps hold()
/// from intervening.
void Publisher::choose_slot() {
  std::lock_guard lock(mutex_);
  const uint64_t newest = head().newest.load(std::memory_order_relaxed), held = building_ == served_ ? held_ : 0;
  uint64_t oldest = UINT64_MAX;
  for (size_t number = 0; number < kVersions; ++number) {
    const uint64_t sequence = slot(number).sequence.load(std::memory_order_relaxed);
    const bool kept = sequence != 0 && (sequence == 2 * newest || sequence == 2 * held);
    if (!kept && sequence < oldest) oldest = sequence, slot_ = number;
  }
  slot(slot_).sequence.store(2 * version_ - 1, std::memory_order_relaxed);
}

bool Publisher::hold(uint64_t version) {
  std::lock_guard lock(mutex_);
  held_ = version != 0 && reader_ != nullptr && reader_->holds(version) ? version : 0;
  return held_ == version;
}

/// Makes room for `bytes` of values, and for a list with one more part.
base::Status Publisher::make_room(uint64_t bytes) {
  const uint64_t needed = aligned_part(bytes) + aligned_part((parts_.size() + 1) * sizeof(ArraySpec));
  if (building_ != nullptr && needed <= slot_bytes_) return {};
  // Grow by half, so arrays that are added one by one are not copied each time. Untouched pages cost nothing.
  const uint64_t larger = aligned_part(std::max(needed, bytes_ > 0 ? needed + needed / 2 : needed) + 4096);
  auto made = base::SharedMemory::make("polyverso-snapshot", memory_bytes(larger));
  if (!made.ok()) return made.status();
  const std::shared_ptr<base::SharedMemory> before = std::move(building_);
  const std::byte* const written = before != nullptr ? before->data() + kValuesAt + slot_ * slot_bytes_ : nullptr;
  building_ = std::move(made).value();
  slot_bytes_ = larger;
  head().slot_bytes.store(larger);
  head().magic.store(SnapshotHead::kMagic);
  slot_ = 0;  // begin() will choose it, too
  if (bytes_ > 0) std::memcpy(values(), written, bytes_);
  begun_ = false;
  return {};
}

void Publisher::begin() {
  if (std::exchange(begun_, true)) return;
  choose_slot();
  base::sequence_fence();
}

base::Status Publisher::add(const void* data, const ArraySpec& part) {
  const auto [count, dtype, shape] = part;
  std::vector<ArraySpec> all = {ArraySpec{bytes_, MV_RAW}, part};
  if (tensor::dtype_bytes(dtype) == 0) return base::error(MV_EDTYPE, "{} is not a dtype", dtype);
  if (parts_.size() == kMostParts) return base::error(MV_EINVAL, "a snapshot can hold at most {} arrays", kMostParts);
  if (count > kMostBytes || !layout_bytes(all).ok())
    return base::error(MV_EINVAL, "{} elements do not fit into a snapshot", count);
  const uint64_t at = aligned_part(bytes_);
  if (auto status = make_room(at + part.bytes()); !status.ok()) return status;
  begin();
  const auto how = part.bytes() >= kLargeArray ? math::Copied::kPastCaches : math::Copied::kByCaches;
  if (!math::copy_finite_bytes(dtype, values() + at, static_cast<const std::byte*>(data), count, tensor::dtype_bytes(dtype), how))
    return base::error(MV_ENONFINITE, "array {} holds NaN or infinity: peers would average with it", parts_.size());
  bytes_ = at + part.bytes();
  parts_.push_back(part);
  return {};
}

base::Status Publisher::publish(double clock, double loss) {
  if (auto status = make_room(bytes_); !status.ok()) return status;
  begin();
  if (!parts_.empty()) std::memcpy(values() + aligned_part(bytes_), parts_.data(), parts_.size() * sizeof(ArraySpec));
  SlotHead& to = slot(slot_);
  to.clock.store(clock, std::memory_order_relaxed);
  to.loss.store(loss, std::memory_order_relaxed);
  to.bytes.store(bytes_, std::memory_order_relaxed);
  to.parts.store(parts_.size(), std::memory_order_relaxed);
  to.sequence.store(2 * version_, std::memory_order_release);
  head().newest.store(version_, std::memory_order_release);
  {
    std::lock_guard lock(mutex_);
    if (served_ != building_) {
      auto reader = SnapshotReader::open(building_);
      if (!reader.ok()) return reader.status();
      if (served_ != nullptr) reinterpret_cast<SnapshotHead*>(served_->data())->retired.store(1, std::memory_order_release);
      served_ = building_;
      held_ = 0;
      reader_ = std::move(reader).value();
    }
  }
  ++version_;
  begun_ = false;
  bytes_ = 0;
  parts_.clear();
  return {};
}

void Publisher::drop() {
  bytes_ = 0;
  parts_.clear();
}

std::shared_ptr<base::SharedMemory> Publisher::memory() const {
  std::lock_guard lock(mutex_);
  return served_;
}

std::shared_ptr<SnapshotReader> Publisher::reader() const {
  std::lock_guard lock(mutex_);
  return reader_;
}

}  // namespace mv::gossip
