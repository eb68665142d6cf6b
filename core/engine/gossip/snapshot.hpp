#pragma once
// The snapshots of a node: published versions 1, 2, 3, … of its parameters, of which shared memory holds three.
//
//   SnapshotHead    the size of a slot, the newest version, whether a larger memory has replaced this one
//   SlotHead * 3    the sequence of the slot of version v: 2 v - 1 while it is written, then 2 v
//   slot * 3        the values, each part on a multiple of 64; after them, on a multiple of 64, the list of parts
//
// The publisher overwrites the oldest version, but never the newest, nor the one that hold() protects for slow readers,
// which read by messages. It does not know the readers of mapped memory. A reader that is so slow that two versions are
// published during its read finds the sequence changed, and begins again with the newest. Memory is therefore bounded,
// publishing never waits, and no reader takes a torn version for a whole one.
//
// A reader does not trust the memory of a peer, which may change any word of it at any time. Each word is atomic, is
// loaded once, and is checked before it is used. Values and the list of parts are copied, and the copies are checked.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "base/sequence_lock.hpp"
#include "base/shared_memory.hpp"

namespace mv::gossip {

/// The type and size of an array in a snapshot.
struct ArraySpec {
  uint64_t count = 0;  ///< elements; bytes of MV_RAW
  mv_dtype dtype = MV_F32;
  uint32_t shape = 0;  ///< see shape_number(); 0: unknown, fits any
  uint64_t bytes() const;
  /// Whether values of the two arrays can be averaged.
  bool fits(const ArraySpec& other) const;
};
/// A hash of two or more dimensions, the same on every machine; 0 for fewer dimensions.
uint32_t shape_number(std::span<const int64_t> lengths);
/// Whether both lists have the same length and fit one by one.
bool parts_fit(std::span<const ArraySpec> some, std::span<const ArraySpec> others);
inline constexpr size_t kPartAlignment = 64;
/// A limit above the memory of any machine. Larger sizes are refused before sums are formed, so no sum overflows.
inline constexpr uint64_t kMostBytes = uint64_t{1} << 42;
/// The description of so many fits into the header of a message.
inline constexpr uint64_t kMostParts = 50'000;
constexpr uint64_t aligned_part(uint64_t bytes) { return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment; }
/// The bytes that these parts take in a snapshot. MV_EPROTOCOL for parts that no node can have published.
base::Result<uint64_t> layout_bytes(std::span<const ArraySpec> parts);
/// The offset of each part.
std::vector<uint64_t> part_starts(std::span<const ArraySpec> parts);
/// "3 arrays of 1024 bytes: f32 x 200, …"
std::string describe_parts(std::span<const ArraySpec> parts);

struct Description {
  uint64_t version = 0;
  double clock = 0, loss = 0;
  uint64_t bytes = 0;
  std::vector<ArraySpec> parts;
};

inline constexpr uint64_t kVersions = 3;
struct SnapshotHead {
  static constexpr uint64_t kMagic = 0x4d56'474f'5353'0002;
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> slot_bytes;
  alignas(64) std::atomic<uint64_t> newest;  ///< 0: none yet
  std::atomic<uint32_t> retired;
};
struct alignas(64) SlotHead {
  std::atomic<uint64_t> sequence;
  std::atomic<double> clock, loss;
  std::atomic<uint64_t> bytes, parts;
};
static_assert(std::atomic<double>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

/// A reader of snapshots, of this node or of a peer. Any thread.
class SnapshotReader {
 public:
  /// MV_EPROTOCOL for memory that does not hold snapshots.
  static base::Result<std::shared_ptr<SnapshotReader>> open(std::shared_ptr<base::SharedMemory> memory);

  uint64_t newest() const { return head().newest.load(std::memory_order_acquire); }
  bool retired() const { return head().retired.load(std::memory_order_acquire) != 0; }
  /// Empty if this version does not exist yet or any more.
  std::optional<Description> describe(uint64_t version) const;
  /// Calls copy(const std::byte*) for `count` bytes from `first` on, which must be within the version. False if the
  /// version is gone: the copied bytes are then invalid.
  template <typename Copy>
  bool read(uint64_t version, uint64_t first, uint64_t count, const Copy& copy) const;
  bool read(uint64_t version, uint64_t first, std::span<std::byte> out) const;
  /// Whether a version exists completely.
  bool holds(uint64_t version) const;
  /// The bytes of a version of this node, in place. The version must exist; the bytes are valid until the second
  /// version after it is begun.
  const std::byte* own_values(uint64_t version) const { return values(slot_of(version)); }

 private:
  SnapshotReader(std::shared_ptr<base::SharedMemory> memory, uint64_t slot_bytes) : memory_(std::move(memory)), slot_bytes_(slot_bytes) {}
  const SnapshotHead& head() const { return *reinterpret_cast<const SnapshotHead*>(memory_->data()); }
  /// kVersions if no slot holds the version completely.
  size_t slot_of(uint64_t version) const;
  const SlotHead& slot(size_t number) const;
  const std::byte* values(size_t number) const;

  const std::shared_ptr<base::SharedMemory> memory_;
  const uint64_t slot_bytes_;
};

template <typename Copy>
bool SnapshotReader::read(uint64_t version, uint64_t first, uint64_t count, const Copy& copy) const {
  if (first > slot_bytes_ || count > slot_bytes_ - first) return false;
  const size_t number = slot_of(version);
  if (number == kVersions) return false;
  {
    [[maybe_unused]] const base::RacyReads racy;
    copy(values(number) + first);
  }
  base::sequence_fence();
  return slot(number).sequence.load(std::memory_order_relaxed) == 2 * version;
}

/// The publisher of a node's own snapshots. add(), publish(), drop() and pending(): one thread at a time; the others:
/// any thread.
class Publisher {
 public:
  /// Copies the next array into the version being built. MV_ENONFINITE, MV_EDTYPE, MV_EINVAL, MV_ENOMEM: the array was
  /// not added.
  base::Status add(const void* data, const ArraySpec& part);
  base::Status add(const void* data, uint64_t count, mv_dtype dtype) { return add(data, ArraySpec{count, dtype}); }
  /// Completes that version and begins the next.
  base::Status publish(double clock, double loss);
  /// Discards the arrays added since the last publish().
  void drop();
  /// The number of arrays added since.
  size_t pending() const { return parts_.size(); }

  /// The memory of the newest version; null before the first.
  std::shared_ptr<base::SharedMemory> memory() const;
  std::shared_ptr<SnapshotReader> reader() const;
  /// Protects this version of reader() from being overwritten, instead of the one held before; 0: none. False if it is
  /// gone.
  bool hold(uint64_t version);

 private:
  base::Status make_room(uint64_t bytes);
  void begin();
  SnapshotHead& head() const { return *reinterpret_cast<SnapshotHead*>(building_->data()); }
  void choose_slot();
  SlotHead& slot(size_t number) const;
  std::byte* values() const;

  std::shared_ptr<base::SharedMemory> building_;  ///< holds the version being built
  uint64_t slot_bytes_ = 0;                       ///< of `building_`
  uint64_t version_ = 1;                          ///< being built
  bool begun_ = false;
  size_t slot_ = 0;                               ///< the slot of that version, once it has begun
  uint64_t bytes_ = 0;
  std::vector<ArraySpec> parts_;

  mutable std::mutex mutex_;  // guards:
  std::shared_ptr<base::SharedMemory> served_;
  std::shared_ptr<SnapshotReader> reader_;
  uint64_t held_ = 0;  ///< version, of served_
};

}  // namespace mv::gossip
