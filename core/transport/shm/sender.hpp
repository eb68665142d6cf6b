#pragma once
// What leaves by one connection: frames go into the ring as they come; what does not fit waits, large payloads by
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
  /// Frames beyond this size travel in parts.
  static constexpr size_t kWholeBytes = (1 << 20) + (64 << 10);
  static constexpr size_t kPartBytes = 256 << 10;
  /// Smaller payloads are copied even where they lie in shared memory.
  static constexpr size_t kPlaceBytes = 16 << 10;

  /// Tells the peer of a segment, once; the number that it goes by, or nothing if that is not possible now.
  using Introduce = std::function<std::optional<uint64_t>(const std::shared_ptr<base::SharedMemory>& memory)>;

  /// @param own the control page in front of `ring`  @param peer the other side's
  Sender(Control& own, std::byte* ring, size_t bytes, const Control& peer, Introduce introduce)
      : own_(own), peer_(peer), introduce_(std::move(introduce)), ring_(ring, bytes) {}
  ~Sender() { let_go(); }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  void push(const base::Frame& frame);
  void push_mark(RecordKind kind, uint32_t number = 0);
  /// The peer has read more than we know.
  bool may_advance() const { return peer_.read.load(std::memory_order_acquire) != ring_.read(); }
  /// Looks how far the peer has read, lets go of what it has, and writes what now fits. MV_EPROTOCOL.
  base::Status advance();
  /// Shows the peer everything that is in the ring; true if that is more than last time.
  bool publish();
  /// The peer has read everything.
  bool all_read() const { return waiting_.empty() && ring_.all_read(); }
  /// What the peer must have read before it is worth while to wake us: kNoWish if nothing waits.
  /// @param to_the_end   wake us when everything is read
  uint64_t wish(bool to_the_end) const;
  /// The peer has read so far.
  bool wish_come_true() const {
    return peer_.read.load(std::memory_order_acquire) >= own_.wants_read.load(std::memory_order_relaxed);
  }
  /// The connection has ended: nothing refers to anybody's memory afterwards.
  void let_go();

 private:
  struct QueuedFrame {
    base::Frame frame;
    RecordKind mark = RecordKind::kFrame;  // another one: no frame, a mark alone
    uint32_t number = 0;
    bool started = false;
    size_t sent = 0;  // of the payload, in parts
  };
  struct Placed {
    uint64_t end;  // position behind the record
    base::Frame frame;
    std::shared_ptr<base::SharedMemory> memory;
    PayloadLocation* place;
  };

  bool put(QueuedFrame& next);
  bool put_whole(const base::Frame& frame);
  bool put_parts(QueuedFrame& next);
  bool put_mark(RecordKind kind, uint32_t number);
  /// Nothing: this payload has to be copied.
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
