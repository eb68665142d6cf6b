#pragma once
// The interfaces between engines and the network. The transports in transport/ and the simulator's network implement
// Link; engines implement LinkEvents. Neither side knows the other.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/payload.hpp"
#include "base/result.hpp"

namespace mv::wire {
struct Message;  // wire/polyverso.fbs
}

namespace mv::base {

/// One life of one node: a random number, never reused, never 0. A restarted process is another peer.
using Peer = uint64_t;
inline constexpr Peer kNobody = 0;

/// An outgoing message in its wire layout: see wire/frame.hpp.
struct Frame {
  std::vector<std::byte> head;  ///< prefix, FlatBuffers header, padding, and a small payload with its padding
  PayloadRef tail;              ///< a large payload, or null
  size_t bytes() const { return head.size() + (tail ? tail->size() : 0); }
};

/// All methods run on the loop thread. They never re-enter LinkEvents: events that they cause are reported later.
class Link {
 public:
  virtual ~Link() = default;
  /// Connects to the listener at `address` ("host:port", "inproc:name"), in one attempt; reports on_connected or
  /// on_dial_failed.
  virtual void dial(const std::string& address) = 0;
  /// Queues a message; messages to one peer leave in this order. The transport copies the head and keeps a reference to
  /// the tail. Without a connection, the message is dropped silently: rpc retries.
  virtual void send(Peer to, const Frame& frame) = 0;
  /// Ends the connection for good and fences this incarnation of the peer: nothing from it is delivered again. Does not
  /// report on_lost.
  virtual void close(Peer peer) = 0;
};

class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  /// A connection is open and authenticated in both directions; also reported after a reconnection. Messages in flight
  /// when the connection broke may or may not have arrived.
  virtual void on_connected(Peer peer, const std::string& address) = 0;
  /// Like on_connected(), for an observer, which only queries the status of the cluster. on_lost() reports its end.
  virtual void on_observer(Peer) {}
  /// A dial() has failed: MV_EUNREACHABLE, MV_EAUTH, MV_EVERSION, MV_EPROTOCOL.
  virtual void on_dial_failed(const std::string& address, const Status& why) = 0;
  /// The peer is lost for good: its process has ended, or the connection could not be restored.
  virtual void on_lost(Peer peer, const Status& why) = 0;

  /// Bytes of a message have arrived whose rest is still on its way. A slow line needs long for a large message, and its
  /// sender is alive meanwhile.
  virtual void on_part(Peer) {}
  /// The size in bytes of an arrived message, with headers and padding. on_message() or on_payload() of it follows.
  virtual void on_arrived(Peer, size_t) {}
  /// A whole message. `payload` is aligned to 8 bytes and valid during the call.
  virtual void on_message(Peer from, const wire::Message& message, std::span<const std::byte> payload) = 0;
  /// The verified header of a message whose payload is still arriving. Returns the place for the payload: never null; a
  /// sink that does not discard has exactly `bytes` of room.
  virtual SinkRef on_header(Peer from, const wire::Message& message, size_t bytes) = 0;
  /// The payload for that sink is complete, never partial. Also called if the sink was discarded meanwhile. The
  /// transport itself discards it if the sender revoked the payload during the read; the sender then sends it again.
  virtual void on_payload(Peer from, const wire::Message& message, Sink& sink) = 0;
};

}  // namespace mv::base
