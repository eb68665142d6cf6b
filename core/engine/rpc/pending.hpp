#pragma once
// The two sides of a request: Pending and Call at the client, Asked and Service at the server.

#include <functional>
#include <memory>
#include <span>

#include "base/link.hpp"
#include "base/result.hpp"
#include "wire/frame.hpp"

namespace mv::rpc {

/// Sequence number of a request in its client's stream to one server, from 1.
using Seq = uint64_t;

/// The client's callback for the end of a request. finish() is called exactly once, unless the client is destroyed
/// first.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Returns the sink for a large answer, as LinkEvents::on_header().
  virtual base::SinkRef place(const wire::Message& answer, size_t bytes);
  /// `answer` is null if none was needed or none came; `payload` is the memory of the sink or of the message.
  virtual void finish(const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) = 0;

 private:
  friend class Client;
  Seq number_ = 0;  ///< of the request with this that was sent last: a hint where to look for it. 0: none was sent
};
using PendingRef = std::shared_ptr<Pending>;

/// Of a request whose end nobody awaits.
class Ignored final : public Pending {
  void finish(const base::Status&, const wire::Message*, std::span<const std::byte>) override {}
};

/// Calls a function with the end's status.
class Told final : public Pending {
 public:
  explicit Told(std::function<void(const base::Status&)> tell) : tell_(std::move(tell)) {}

 private:
  void finish(const base::Status& status, const wire::Message*, std::span<const std::byte>) override { tell_(status); }

  const std::function<void(const base::Status&)> tell_;
};

/// A request to be sent.
struct Call {
  base::Frame frame;
  PendingRef pending;
  bool wants_answer = true;   ///< false: a change, which the cumulative acknowledgement finishes
  size_t cost = 0;            ///< bytes that count against the window: the larger of request and answer
  base::PayloadRef offer;     ///< sent only when the server grants it
  bool overtakes = false;     ///< does not wait behind calls for which there is no room
  /// Makes the frame just before it is first sent, so that a queued request takes no memory and no time.
  std::function<base::Frame()> make = nullptr;
  uint64_t queue = 0;         ///< calls of one queue keep their order; nothing overtakes a call of queue 0
  int64_t priority = 0;       ///< waiting calls of different queues: higher priorities are sent first
  size_t window_bytes = 0;    ///< the limit on bytes in flight for this call, if below the client's; 0: the client's
};

/// The server's name for a started request that will be answered, or for a part of a split one.
struct Asked {
  base::Peer client = base::kNobody;
  Seq seq = 0;
  uint32_t part = 0;  ///< from 1; 0: the request itself
  auto operator<=>(const Asked&) const = default;
  struct Hash {
    size_t operator()(const Asked& asked) const { return (asked.client ^ asked.seq ^ uint64_t{asked.part} << 40) * UINT64_C(0x9e3779b97f4a7c15) >> 7; }
  };
};

/// The engines above rpc's server. Requests of one client start in sequence order, each once (but see on_request()).
class Service {
 public:
  virtual ~Service() = default;
  /// Returns the sink for the large payload of a request or of its granted data. Never null; an invalid message gets a
  /// sink that discards.
  virtual base::SinkRef place(const wire::Message& request, size_t bytes) = 0;
  /// Whether this request may start now. If not, it waits here or at its client until Server::go_on().
  virtual bool may_start(const Asked&, const wire::Message&) { return true; }
  /// A request starts. `staged` is the sink that holds `payload`, or null if the payload is valid only during the call.
  /// A Get may start again after its answer was lost.
  virtual void on_request(const Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                          const base::SinkRef& staged) = 0;
  /// Whether a request that counts as done starts again when it is repeated. Gets always do.
  virtual bool starts_again(const wire::Message&) { return false; }
  /// The granted payload of a request has arrived.
  virtual void on_data(const Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) = 0;
  /// The client gives up waiting. The service either answers with MV_ETIMEOUT and the names of the missing processes,
  /// or lets the request continue.
  virtual void on_cancel(const Asked& asked) = 0;
};

}  // namespace mv::rpc
