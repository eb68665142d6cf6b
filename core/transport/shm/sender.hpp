#pragma once
// The output of one connection: writes frames into the ring, and queues those that do not fit, large payloads by
// reference.

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "base/link.hpp"
#include "transport/shm/ring.hpp"

namespace mv::transport {

class Sender final : private base::Borrower {
 public:
  /// Larger frames are sent in parts.
  static constexpr size_t kWholeBytes = (1 << 20) + (64 << 10);
  static constexpr size_t kPartBytes = 256 << 10;
  /// Smaller payloads are copied even if they are in shared memory.
  static constexpr size_t kPlaceBytes = 16 << 10;

  /// Introduces a segment to the peer, once. Returns its number, or nothing if that is not possible now.
  using Introduce = std::function<std::optional<uint64_t>(const std::shared_ptr<base::SharedMemory>& memory)>;

  /// @param own the control page in front of `ring`  @param peer the other side's control page
  Sender(Control& own, std::byte* ring, size_t bytes, const Control& peer, Introduce introduce)
      : own_(own), peer_(peer), introduce_(std::move(introduce)), ring_(ring, bytes) {}
  ~Sender() { let_go(); }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  void push(const base::Frame& frame);
  void push_mark(RecordKind kind, uint32_t number = 0);
  /// Whether the peer has read more than at the last advance().
  bool may_advance() const { return peer_.read.load(std::memory_order_acquire) != ring_.read(); }
  /// Loads the peer's read position, releases the payloads that it has read, and writes the frames that now fit.
  /// MV_EPROTOCOL.
  base::Status advance();
  /// Publishes everything in the ring to the peer; true if that is more than last time.
  bool publish();
  /// Whether the peer has read everything.
  bool all_read() const { return waiting_.empty() && ring_.all_read(); }
  /// The read position at which the peer should wake this side; kNoWish if nothing waits.
  /// @param to_the_end   wait for the peer to read everything
  uint64_t wish(bool to_the_end) const;
  /// Whether the peer has reached that position.
  bool wish_come_true() const {
    return peer_.read.load(std::memory_order_acquire) >= own_.wants_read.load(std::memory_order_relaxed);
  }
  /// Revokes and returns all payloads, because the connection has ended. No reference to a caller's memory remains.
  void let_go();

 private:
  struct QueuedFrame {
    base::Frame frame;
    RecordKind mark = RecordKind::kFrame;  // any other kind: a mark alone, without a frame
    uint32_t number = 0;
    bool started = false;
    size_t sent = 0;  // bytes of the payload, if sent in parts
  };
  struct Placed {
    uint64_t end;  // position after the record
    base::Frame frame;
    std::shared_ptr<base::SharedMemory> memory;
    PayloadLocation* place;
  };

  bool put(QueuedFrame& next);
  bool put_whole(const base::Frame& frame);
  bool put_parts(QueuedFrame& next);
  bool put_mark(RecordKind kind, uint32_t number);
  /// Empty: this payload must be copied.
  std::optional<bool> put_place(const base::Frame& frame);
  void give_back(base::Payload& payload) override;

  Control& own_;
  const Control& peer_;
  const Introduce introduce_;
  RingWriter ring_;
  uint64_t published_ = 0;
  std::deque<QueuedFrame> waiting_;
  std::deque<Placed> placed_;
};

}  // namespace mv::transport
