#pragma once
// One direction of the shared-memory transport: a ring of records in memory that its sender creates and its receiver
// can only read.
//
// Each side of a connection creates one segment: a control page and the ring. The control page publishes how far this
// side has written its own ring and how far it has read the other's. A side writes only its own segment. It does not
// trust the peer's, which a broken peer may change at any time: it loads each word of the control page once,
// atomically, and checks it before use; it copies prefixes and headers of records before it examines them; payloads are
// only data.
//
// Positions count bytes since the beginning. A record is contiguous and starts on a multiple of kRecordUnit. It begins
// with a mark of 16 bytes, laid out like a frame's prefix (wire/frame.hpp), whose magic is the kind of the record.
//
// When a ring has been read empty, its writer goes back to the beginning. A quiet connection, of which a large cluster
// has very many, therefore needs few pages of its ring, and a caller that waits for each answer needs few cache lines.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/frame.hpp"

namespace mv::transport {

inline constexpr size_t kControlBytes = 4096;
inline constexpr size_t kRingBytes = 4 << 20;
/// From this place on, a writer goes back to the beginning when the ring is empty.
inline constexpr size_t kQuietBytes = 8 << 10;
inline constexpr size_t kRecordUnit = 16;
/// Records are smaller than this, so an empty ring always has contiguous room for one.
inline constexpr size_t kRecordLimit = kRingBytes / 2;
constexpr size_t record_bytes(size_t bytes) { return (bytes + kRecordUnit - 1) & ~(kRecordUnit - 1); }

/// The control page. Only the creator of the segment writes it. `alignas` prevents false sharing.
struct Control {
  static constexpr uint64_t kMagic = 0x4d56'5348'4d52'0002;
  std::atomic<uint64_t> magic;
  std::atomic<uint64_t> ring_bytes;
  alignas(64) std::atomic<uint64_t> written;  ///< position in its own ring: records before it are complete
  alignas(64) std::atomic<uint64_t> read;     ///< position in the other's ring: bytes before it may be overwritten
  alignas(64) std::atomic<uint64_t> naps;  ///< counts the starts and ends of sleep: odd while asleep
  std::atomic<uint32_t> processor;         ///< where the creator last ran
  std::atomic<uint64_t> wants_read;        ///< the read position of the other for which the sleeper waits, or kNoWish
};
inline constexpr uint64_t kNoWish = UINT64_MAX;
static_assert(sizeof(Control) <= kControlBytes && std::atomic<uint64_t>::is_always_lock_free);

/// The first bytes of a record.
struct Mark {
  uint32_t magic;
  uint32_t first;
  uint64_t second;
};
static_assert(sizeof(Mark) == wire::kPrefixBytes && sizeof(Mark) == kRecordUnit);

enum class RecordKind : uint32_t {
  kFrame = wire::kFrameMagic,  ///< a complete frame, exactly as over TCP
  kSkip = 0x4d56'5002,         ///< the next record is at the beginning of the ring
  kStart = 0x4d56'5003,        ///< a frame without its payload, which follows in parts
  kPart = 0x4d56'5004,         ///< `first` bytes of that payload
  kPlace = 0x4d56'5005,        ///< a frame without its payload, then the payload's PayloadLocation
  kForget = 0x4d56'5006,       ///< the receiver may unmap segment `first`
  kGoodbye = 0x4d56'5007,
};

/// The location of a payload in shared memory, at the end of a kPlace record.
///
/// The memory of a lent payload belongs to a caller, which may need it back at any time. The sender then sets
/// `revoked`, sends the payload again from a copy, and returns the memory at once, without waiting for the receiver.
/// The receiver therefore copies a lent payload before it examines it, and discards the copy if the payload was revoked
/// meanwhile: a sequence lock with one write.
///
/// When the sender gives the connection up, it marks all payloads that the receiver has not read, and their memory may be
/// used for something else: a receiver that was stopped for long, and continues, must not take it for the payloads.
struct PayloadLocation {
  static constexpr uint64_t kRevoked = 1;  ///< a copy is void, and the payload is sent again
  static constexpr uint64_t kGivenUp = 2;  ///< nothing more comes by this connection
  std::atomic<uint64_t> segment;  ///< the number of the segment in this connection
  std::atomic<uint64_t> offset;
  std::atomic<uint64_t> revoked;  ///< set by the sender: 0, kRevoked or kGivenUp
  std::atomic<uint64_t> is_lent;  ///< the payload may be revoked
};
static_assert(sizeof(PayloadLocation) == 32);

/// Populates the pages of a ring before they are used, which is much cheaper than a page fault for each. Each time it
/// populates twice as many as before, so few calls suffice, and little memory stays unused. Before Linux 5.14, the
/// kernel can't do that, and the pages fault.
class PagesAhead {
 public:
  enum class Access { kRead, kWrite };
  PagesAhead(const std::byte* ring, size_t bytes, Access access) : ring_(ring), bytes_(bytes), access_(access) {}
  /// The bytes before `end` are about to be used.
  void reach(size_t end) {
    if (end > ready_) bring(end);
  }

 private:
  void bring(size_t end);

  const std::byte* const ring_;
  const size_t bytes_;
  const Access access_;
  size_t ready_ = 0;
};

/// The sender's end of a ring.
class RingWriter {
 public:
  RingWriter(std::byte* ring, size_t bytes) : ring_(ring), bytes_(bytes), pages_(ring, bytes, PagesAhead::Access::kWrite) {}

  /// Uninitialised memory for a record, not yet visible to the peer; null if there is no room now.
  std::byte* reserve(size_t bytes);
  /// Completes the record that was reserved last.
  void commit(size_t bytes) { position_ += bytes; }
  uint64_t position() const { return position_; }

  /// Sets the peer's read position; false if it is invalid.
  bool set_read(uint64_t read);
  uint64_t read() const { return read_; }
  bool all_read() const { return read_ == position_; }

 private:
  std::byte* go_to_beginning(size_t at);

  std::byte* const ring_;
  const size_t bytes_;
  PagesAhead pages_;
  uint64_t position_ = 0;
  uint64_t read_ = 0;
};

/// The receiver's end of a ring.
class RingReader {
 public:
  RingReader(const std::byte* ring, size_t bytes) : ring_(ring), bytes_(bytes), pages_(ring, bytes, PagesAhead::Access::kRead) {}

  struct Record {
    Mark mark;  ///< a copy
    /// The bytes from the mark on, perhaps more than this record; the peer can still change them.
    std::span<const std::byte> bytes;
  };
  /// Sets the peer's write position; false if it is invalid.
  bool set_written(uint64_t written);
  bool empty() const { return position_ == written_; }
  /// The next record, without skip marks; empty if there is none, or if a skip mark is invalid: see wrong().
  std::optional<Record> next();
  bool wrong() const { return wrong_; }
  void consume(size_t bytes) { position_ += bytes; }
  void skip_all() { position_ = written_; }
  uint64_t position() const { return position_; }

 private:
  const std::byte* const ring_;
  const size_t bytes_;
  PagesAhead pages_;
  uint64_t position_ = 0;
  uint64_t written_ = 0;
  bool wrong_ = false;
};

}  // namespace mv::transport
