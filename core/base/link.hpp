#pragma once
// What engines see of the network, and what the network sees of engines. The transports in transport/ and the simulator's network
// implement Link; engines implement LinkEvents. Neither knows the other.

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

/// A message on its way out, laid out as it travels: see wire/frame.hpp.
struct Frame {
  std::vector<std::byte> head;  ///< prefix, FlatBuffers header, padding, and a small payload with its padding
  PayloadRef tail;              ///< a large payload, or null
  size_t bytes() const { return head.size() + (tail ? tail->size() : 0); }
};

/// All methods on the loop thread. Calls never re-enter LinkEvents: what they cause is reported later.
class Link {
 public:
  virtual ~Link() = default;
  /// Connects to whoever listens at `address` ("host:port", "inproc:name"), once; reports on_connected or on_dial_failed.
  virtual void dial(const std::string& address) = 0;
  /// Queues a message; messages to one peer leave in this order. The head is copied into the transport's own block, the tail is
  /// referred to. Silently dropped when there is no connection: rpc retries.
  virtual void send(Peer to, const Frame& frame) = 0;
  /// Ends the connection for good and fences this life of the peer: nothing of it is heard again. on_lost is not reported.
  virtual void close(Peer peer) = 0;
};

class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  /// A connection stands, authenticated in both directions; also after a break was mended. Messages in flight at the
  /// break may or may not have arrived.
  virtual void on_connected(Peer peer, const std::string& address) = 0;
  /// As on_connected(), of somebody who only wants to know how the cluster stands. Its end is told by on_lost().
  virtual void on_observer(Peer) {}
  /// A dial() that came to nothing: MV_EUNREACHABLE, MV_EAUTH, MV_EVERSION, MV_EPROTOCOL.
  virtual void on_dial_failed(const std::string& address, const Status& why) = 0;
  /// The peer is gone for good: its process ended, or the way to it stayed broken.
  virtual void on_lost(Peer peer, const Status& why) = 0;

  /// So many bytes, headers and padding included, have come: of the message that on_message() or on_payload() now tells of.
  virtual void on_arrived(Peer, size_t) {}
  /// A whole message. `payload` is aligned to 8 bytes and valid during the call.
  virtual void on_message(Peer from, const wire::Message& message, std::span<const std::byte> payload) = 0;
  /// The verified header of a message whose payload is still arriving: says where it shall go. Never null; a sink that does
  /// not discard has exactly `bytes` of room.
  virtual SinkRef on_header(Peer from, const wire::Message& message, size_t bytes) = 0;
  /// That payload is complete, never partial. If the sink was discarded meanwhile this is called all the same. A transport may discard it, too: the
  /// sender took the payload back while it was read, and sends the message again.
  virtual void on_payload(Peer from, const wire::Message& message, Sink& sink) = 0;
};

}  // namespace mv::base
