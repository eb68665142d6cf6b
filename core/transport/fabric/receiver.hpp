#pragma once
// The receiving end of one line of a fabric. Puts messages in order, fetches large payloads into their places, and
// delivers them.
//
// A message of the fabric has a LineHeader, mostly followed by the head of a frame (wire/frame.hpp), and a body:
//
//   kOpen      nothing: the first message of a line, which proves its sender
//   kFrame     the body is a whole frame, which has no tail
//   kTailed    the frame's head follows the LineHeader, the body is its tail
//   kHead      the body is the head of a frame, which was too large for kTailed; kTail comes next
//   kTail      the body is the tail
//   kGoodbye   nothing: the sender has ended the line for good
//
// Between processes of a job (job_transport.hpp) also:
//
//   kDial      begins a line: the sender's number of it and the sender's address follow the LineHeader, whose line is 0; the
//              body has bytes of the hello
//   kHello     the sender's number of the line follows the LineHeader; the body has bytes of the hello
//   kFarewell  nothing: answers a kGoodbye, when everything before that has arrived
//   kCut       nothing: the sender has broken the line

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/link.hpp"
#include "transport/fabric/fabric.hpp"

namespace mv::transport {

/// Proves that a message comes from the peer with which the hello was made: only the two ends know it.
using LineToken = std::array<std::byte, 16>;

enum class LineKind : uint32_t { kOpen = 1, kFrame, kTailed, kHead, kTail, kGoodbye, kDial, kHello, kFarewell, kCut };

/// Little-endian: the hello refuses peers with another byte order.
struct LineHeader {
  LineToken token;
  uint64_t line;   ///< the receiver's number of the line
  uint64_t place;  ///< in the order of the line's messages, from 0
  LineKind kind;
  uint32_t zero;
};
static_assert(sizeof(LineHeader) == 40);

/// A message that has arrived. Releases it.
class Arrival {
 public:
  /// nullopt, after a release, if it is too short.
  static std::optional<Arrival> of(Fabric& fabric, const mv_fabric_event& event);
  Arrival(Arrival&& other) noexcept : fabric_(other.fabric_), event_(other.event_) { other.event_.message = nullptr; }
  Arrival& operator=(Arrival&&) = delete;
  ~Arrival() {
    if (event_.message != nullptr) fabric_.release(event_.message);
  }

  LineHeader header() const;
  std::span<const std::byte> head() const { return {static_cast<const std::byte*>(event_.header) + sizeof(LineHeader), event_.header_bytes - sizeof(LineHeader)}; }
  bool is_here() const { return event_.body != nullptr || event_.body_bytes == 0; }
  size_t bytes() const { return event_.body_bytes; }
  std::span<const std::byte> body() const { return {static_cast<const std::byte*>(event_.body), event_.body_bytes}; }
  /// Passes the ownership to a Fabric::receive().
  mv_fabric_message give() { return std::exchange(event_.message, nullptr); }

 private:
  Arrival(Fabric& fabric, const mv_fabric_event& event) : fabric_(fabric), event_(event) {}
  Fabric& fabric_;
  mv_fabric_event event_;
};

class FabricReceiver {
 public:
  /// A body in transit. It owns its memory until the fabric reports its end, even if the receiver is gone by then.
  struct Fetch {
    FabricReceiver* receiver;              // null: nobody waits for it any more
    std::unique_ptr<Fabric::Block> block;  // the memory, or
    std::shared_ptr<void> keep;            // what keeps it alive
    std::span<std::byte> memory;
  };

  using Fetches = std::map<const void*, std::unique_ptr<Fetch>>;

  /// @param line     the receiver's number of the line
  /// @param fetches  those in progress, of all lines
  FabricReceiver(Fabric& fabric, base::LinkEvents& events, base::Peer from, uint64_t line, Fetches& fetches)
      : fabric_(fabric), events_(events), from_(from), line_(line), fetches_(fetches) {}
  ~FabricReceiver();
  FabricReceiver(const FabricReceiver&) = delete;
  FabricReceiver& operator=(const FabricReceiver&) = delete;

  uint64_t line() const { return line_; }
  /// Delivers the message and those that have waited for it, or keeps it until its turn. Stops after a kOpen, until
  /// resume(). MV_EPROTOCOL; another error if a payload can't be fetched.
  base::Status take(Arrival arrival);
  base::Status resume() { return deliver(); }
  /// The fetch, which this receiver has begun, has ended.
  base::Status fetched(std::unique_ptr<Fetch> fetch, mv_status status);

  bool opened() const { return opened_; }
  bool goodbye() const { return goodbye_; }
  /// Makes no further calls to LinkEvents, and only waits for the goodbye. May be called from within such a call.
  void stop() { stopped_ = true; }

 private:
  base::Status deliver();
  base::Status deliver_one(Arrival arrival);
  base::Status begin_fetch(Arrival arrival, bool is_head, std::unique_ptr<Fabric::Block> block, base::SinkRef sink);
  base::Status take_frame(std::span<const std::byte> frame);
  base::Status take_tail(Arrival arrival);
  void end_payload(std::span<const std::byte> from);

  Fabric& fabric_;
  base::LinkEvents& events_;
  const base::Peer from_;
  const uint64_t line_;
  Fetches& fetches_;
  uint64_t next_ = 0;
  std::map<uint64_t, Arrival> early_;  // by place
  Fetch* fetching_ = nullptr;
  bool fetches_head_ = false;
  LineKind fetched_kind_ = LineKind::kFrame;
  std::vector<std::byte> head_;  // of the message whose tail is arriving
  base::SinkRef sink_;
  bool opened_ = false, goodbye_ = false, stopped_ = false;
};

}  // namespace mv::transport
