#pragma once
// The input of one connection: reads the records of the peer's ring, checks them, and delivers them to the engines.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/link.hpp"
#include "base/shared_memory.hpp"
#include "transport/shm/ring.hpp"

namespace mv::transport {

class ShmReceiver {
 public:
  /// Returns the peer's segment of this number, or null if the peer has not introduced it. Forget releases a segment.
  using Find = std::function<std::shared_ptr<base::SharedMemory>(uint64_t number)>;
  using Forget = std::function<void(uint64_t number)>;

  /// @param peer the control page in front of `ring`
  /// @param own  this side's control page, which publishes its read position
  ShmReceiver(base::LinkEvents& events, base::Peer from, const Control& peer, const std::byte* ring, size_t bytes,
              Control& own, Find find, Forget forget);

  /// True if there are records to take.
  bool ready() const { return !stopped_ && has_more(); }
  /// True if there are records to take, or to pass over.
  bool has_more() const { return !spoiled_ && peer_.written.load(std::memory_order_acquire) != ring_.position(); }
  /// Calls LinkEvents for about `budget` bytes of records. MV_EPROTOCOL ends the connection.
  base::Status take(size_t budget);
  /// Discards the records that are there, so that the peer gets room to continue; true if there were any.
  bool pass_over();
  /// Makes no further calls to LinkEvents. May be called from within such a call.
  void stop() { stopped_ = true; }
  /// The peer has sent a goodbye; everything before it has been delivered.
  bool goodbye() const { return goodbye_; }

 private:
  base::Status take_record(const RingReader::Record& record);
  base::Status take_frame(const RingReader::Record& record);
  base::Status take_start(const RingReader::Record& record);
  base::Status take_part(const RingReader::Record& record);
  base::Status take_place(const RingReader::Record& record);
  void take_lent(const wire::Message& message, std::span<const std::byte> bytes, const PayloadLocation& place);
  /// Copies the header out of the ring, and verifies the copy.
  base::Result<const wire::Message*> copy_header(const RingReader::Record& record, const wire::Prefix& prefix);
  base::Result<wire::Prefix> read_mark(const RingReader::Record& record, size_t behind_header);
  void end_payload();
  void tell_read();

  base::LinkEvents& events_;
  const base::Peer from_;
  const Control& peer_;
  Control& own_;
  const Find find_;
  const Forget forget_;
  RingReader ring_;
  uint64_t told_ = 0;  // the read position that the peer knows
  bool stopped_ = false;
  bool spoiled_ = false;  // the peer's write position is invalid, and not to be reported
  bool goodbye_ = false;
  std::vector<std::byte> header_;
  // A frame that arrives in parts.
  base::SinkRef sink_;
  size_t payload_bytes_ = 0, payload_got_ = 0;
};

}  // namespace mv::transport
