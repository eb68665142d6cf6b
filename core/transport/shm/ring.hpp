#pragma once
// One direction of the shared-memory transport: a ring of records in memory that its sender made and its receiver can only
// read.
//
// Each side of a connection makes one segment: a control page, which tells the other how far this side has written its
// own ring and how far it has read the other's, and the ring itself. A side writes only its own segment. It does not trust
// the peer's, which a broken peer may change at any time: each word of the control page is atomic, loaded once and checked
// before it is used; prefixes and headers of records are copied out before they are looked at; payloads are only data.
//
// Positions count bytes since the beginning. A record lies in one piece, starts on a multiple of kRecordUnit, and has
// in front 16 bytes like a frame's prefix (wire/frame.hpp), whose magic tells what it is.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/frame.hpp"

namespace mv::transport {

inline constexpr size_t kControlBytes = 4096;
inline constexpr size_t kRingBytes = 4 << 20;
inline constexpr size_t kRecordUnit = 16;
/// Records are smaller than this, so that a ring that has been read always has room for one in one piece.
inline constexpr size_t kRecordLimit = kRingBytes / 2;
constexpr size_t record_bytes(size_t bytes) { return (bytes + kRecordUnit - 1) & ~(kRecordUnit - 1); }

/// Written by the maker of the segment only.
struct Control {
  static constexpr uint64_t kMagic = 0x4d56'5348'4d52'0002;
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> ring_bytes;
  alignas(64) std::atomic<uint64_t> written;  ///< position in the own ring: records before it are whole
  alignas(64) std::atomic<uint64_t> read;     ///< position in the other's ring: what lies before it may be overwritten
  alignas(64) std::atomic<uint64_t> naps;  ///< counts the beginnings and ends of sleep: odd while asleep
  std::atomic<uint32_t> processor;         ///< where the maker ran last
  std::atomic<uint64_t> wants_read;        ///< asleep, and waiting for the other to have read so far; kNoWish if not
};
inline constexpr uint64_t kNoWish = UINT64_MAX;
static_assert(sizeof(Control) <= kControlBytes && std::atomic<uint64_t>::is_always_lock_free);

/// What stands in front of a record.
struct Mark {
  uint32_t magic;
  uint32_t first;
  uint64_t second;
};
static_assert(sizeof(Mark) == wire::kPrefixBytes && sizeof(Mark) == kRecordUnit);

enum class RecordKind : uint32_t {
  kFrame = wire::kFrameMagic,  ///< a whole frame, exactly as over TCP
  kSkip = 0x4d56'5002,         ///< go on at the beginning of the ring
  kStart = 0x4d56'5003,        ///< a frame without its payload, which comes in parts
  kPart = 0x4d56'5004,         ///< `first` bytes of it
  kPlace = 0x4d56'5005,        ///< a frame without its payload, and the PayloadLocation where that lies
  kOneWay = 0x4d56'5006,       ///< segment number `first` is not needed any more
  kGoodbye = 0x4d56'5007,
};

/// Where a payload lies, at the end of a kPlace record.
///
/// A lent payload's memory belongs to a caller who may want it back at any time. The sender then sets `revoked`, sends the payload again from a
/// copy, and returns the memory at once, whatever the receiver is doing: it waits for nobody. So the receiver copies a lent payload before it
/// looks at it, and throws the copy away if the payload was revoked meanwhile: a sequence lock with one write.
struct PayloadLocation {
  std::atomic<uint64_t> segment;  ///< its number in this connection
  std::atomic<uint64_t> offset;
  std::atomic<uint64_t> revoked;  ///< set by the sender: what was copied is void, and comes again
  std::atomic<uint64_t> is_lent;  ///< the payload may be revoked
};
static_assert(sizeof(PayloadLocation) == 32);

/// The sender's side of a ring.
class RingWriter {
 public:
  RingWriter(std::byte* ring, size_t bytes) : ring_(ring), bytes_(bytes) {}

  /// Memory for a record, uninitialised but for nobody else's eyes yet; null if there is no room now.
  std::byte* reserve(size_t bytes);
  /// The record that was reserved last is whole.
  void commit(size_t bytes) { position_ += bytes; }
  uint64_t position() const { return position_; }

  /// Takes over the peer's read position; false if it can't be true.
  bool set_read(uint64_t read);
  uint64_t read() const { return read_; }
  bool all_read() const { return read_ == position_; }

 private:
  std::byte* const ring_;
  const size_t bytes_;
  uint64_t position_ = 0;
  uint64_t read_ = 0;
};

/// The receiver's.
class RingReader {
 public:
  RingReader(const std::byte* ring, size_t bytes) : ring_(ring), bytes_(bytes) {}

  struct Record {
    Mark mark;  ///< copied
    /// From the mark on, and perhaps more than this record; the peer can still change them.
    std::span<const std::byte> bytes;
  };
  /// Takes over the peer's write position; false if it can't be true.
  bool set_written(uint64_t written);
  bool empty() const { return position_ == written_; }
  /// The next record, skip marks left out; nothing if there is none, or if marks make no sense: see wrong().
  std::optional<Record> next();
  bool wrong() const { return wrong_; }
  void consume(size_t bytes) { position_ += bytes; }
  void skip_all() { position_ = written_; }
  uint64_t position() const { return position_; }

 private:
  const std::byte* const ring_;
  const size_t bytes_;
  uint64_t position_ = 0;
  uint64_t written_ = 0;
  bool wrong_ = false;
};

}  // namespace mv::transport
