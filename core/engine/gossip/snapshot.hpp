#pragma once
// A node's parameters as its peers may see them: versions 1, 2, 3, … of which the last three lie in shared memory.
//
//   SnapshotHead    how large a slot is, the newest version, whether this memory has been replaced by a larger one
//   SlotHead * 3    the sequence of the slot that version v is in is 2 v - 1 while it is written, then 2 v
//   slot * 3        the values, each part on a multiple of 64; behind them, on a multiple of 64, the list of parts
//
// The publisher writes over the oldest version, but never over the newest, nor over the one that hold() names for those who read slowly, by
// messages. It knows nothing of readers of mapped memory: a reader that is so slow that two versions come while it reads one finds the sequence
// moved, and begins again with the newest. So memory is bounded, publishing waits for nobody, and no reader takes a torn version for a whole
// one.
//
// A reader does not trust the memory of a peer, which may change any word of it at any time: each word is atomic, is loaded once, and is checked
// before it is used. Values and the list of parts are copied, and the copies checked.

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

/// An array of a snapshot.
struct ArraySpec {
  uint64_t count = 0;  ///< elements; bytes of MV_RAW
  mv_dtype dtype = MV_F32;
  uint32_t shape = 0;  ///< see shape_number(); 0: unknown, which goes with any
  uint64_t bytes() const;
  /// Whether values of one can be averaged with values of the other.
  bool fits(const ArraySpec& other) const;
};
/// Of two or more dimensions a number that others hardly share, the same on every machine; 0 of fewer.
uint32_t shape_number(std::span<const int64_t> lengths);
/// Whether they are as many, and fit one by one.
bool parts_fit(std::span<const ArraySpec> some, std::span<const ArraySpec> others);
inline constexpr size_t kPartAlignment = 64;
/// Larger ones than any machine's memory are refused before anything is added up.
inline constexpr uint64_t kMostBytes = uint64_t{1} << 42;
inline constexpr uint64_t kMostParts = 1 << 16;
constexpr uint64_t aligned_part(uint64_t bytes) { return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment; }
/// The bytes that these parts take in a snapshot. MV_EPROTOCOL for parts that nobody can have published.
base::Result<uint64_t> layout_bytes(std::span<const ArraySpec> parts);
/// Where each of them begins.
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

/// Somebody's snapshots, one's own or a peer's. Any thread.
class SnapshotReader {
 public:
  /// MV_EPROTOCOL for memory that holds no snapshots.
  static base::Result<std::shared_ptr<SnapshotReader>> open(std::shared_ptr<base::SharedMemory> memory);

  uint64_t newest() const { return head().newest.load(std::memory_order_acquire); }
  bool retired() const { return head().retired.load(std::memory_order_acquire) != 0; }
  /// Nothing if this version is no longer, or not yet, there.
  std::optional<Description> describe(uint64_t version) const;
  /// copy(const std::byte*) of `count` bytes from `first` on, which lie within the version's. False if it is gone: what was copied is
  /// good for nothing.
  template <typename Copy>
  bool read(uint64_t version, uint64_t first, uint64_t count, const Copy& copy) const;
  bool read(uint64_t version, uint64_t first, std::span<std::byte> out) const;
  /// Whether a version is there, whole.
  bool holds(uint64_t version) const;
  /// The bytes of a version of one's own that is there, where they lie; until one begins with the second version after it.
  const std::byte* own_values(uint64_t version) const { return values(slot_of(version)); }

 private:
  SnapshotReader(std::shared_ptr<base::SharedMemory> memory, uint64_t slot_bytes) : memory_(std::move(memory)), slot_bytes_(slot_bytes) {}
  const SnapshotHead& head() const { return *reinterpret_cast<const SnapshotHead*>(memory_->data()); }
  /// kVersions if the version is in none, whole.
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

/// Makes a node's own snapshots. add() and publish() by one thread at a time; the others by any.
class Publisher {
 public:
  /// Copies the next array of the version under way. MV_ENONFINITE, MV_EDTYPE, MV_ENOMEM: it is not in it.
  base::Status add(const void* data, const ArraySpec& part);
  base::Status add(const void* data, uint64_t count, mv_dtype dtype) { return add(data, ArraySpec{count, dtype}); }
  /// Completes that version, and begins the next.
  base::Status publish(double clock, double loss);
  /// Forgets what was added since the last publish().
  void drop();
  /// How many arrays have been added since.
  size_t pending() const { return parts_.size(); }

  /// The memory of the newest version; null before the first.
  std::shared_ptr<base::SharedMemory> memory() const;
  std::shared_ptr<SnapshotReader> reader() const;
  /// From now on this version of reader() is not written over, nor any other held; 0: none. False if it has gone.
  bool hold(uint64_t version);

 private:
  base::Status make_room(uint64_t bytes);
  void begin();
  SnapshotHead& head() const { return *reinterpret_cast<SnapshotHead*>(building_->data()); }
  void choose_slot();
  SlotHead& slot(size_t number) const;
  std::byte* values() const;

  std::shared_ptr<base::SharedMemory> building_;  ///< where the version under way lies
  uint64_t slot_bytes_ = 0;                       ///< there
  uint64_t version_ = 1;                          ///< under way
  bool begun_ = false;
  size_t slot_ = 0;                               ///< where it is written, once it has begun
  uint64_t bytes_ = 0;
  std::vector<ArraySpec> parts_;

  mutable std::mutex mutex_;  // guards:
  std::shared_ptr<base::SharedMemory> served_;
  std::shared_ptr<SnapshotReader> reader_;
  uint64_t held_ = 0;  ///< version, of served_
};

}  // namespace mv::gossip
