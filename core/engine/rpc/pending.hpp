#pragma once
// What the two sides of a request know of it.

#include <functional>
#include <memory>
#include <span>

#include "base/link.hpp"
#include "base/result.hpp"
#include "wire/frame.hpp"

namespace mv::rpc {

/// Number of a request in its client's stream to one server, from 1.
using Seq = uint64_t;

/// The client's side: who hears how a request ended. finish() is called exactly once, unless the client is destroyed first.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Where a large answer goes; as LinkEvents::on_header().
  virtual base::SinkRef place(const wire::Message& answer, size_t bytes);
  /// `answer` is null where none was needed or none came; `payload` is the sink's memory or the message's own.
  virtual void finish(const base::Status& status, const wire::Message* answer, std::span<const std::byte> payload) = 0;
};
using PendingRef = std::shared_ptr<Pending>;

/// A request to be sent.
struct Call {
  base::Frame frame;
  PendingRef pending;
  bool wants_answer = true;   ///< false: a change, which the cumulative acknowledgement finishes
  size_t cost = 0;            ///< bytes that count against the window: the larger of what travels either way
  base::PayloadRef offer;     ///< sent only when the server grants it
  bool overtakes = false;     ///< does not wait behind calls for which there is no room
  /// Makes the frame just before it is sent for the first time, so that what waits for its turn takes no memory and no time.
  std::function<base::Frame()> make = nullptr;
  uint64_t queue = 0;          ///< calls of one queue keep their order; nothing overtakes those of queue 0
  int64_t priority = 0;       ///< of calls that wait, the higher ones of other queues are sent first
  size_t window_bytes = 0;    ///< room for what is under way with it, if that is less than usual; 0: as usual
};

/// The server's side: names a request that was started and will be answered, or a part of one that was split.
struct Asked {
  base::Peer client = base::kNobody;
  Seq seq = 0;
  uint32_t part = 0;  ///< from 1; 0: the request itself
  auto operator<=>(const Asked&) const = default;
  struct Hash {
    size_t operator()(const Asked& asked) const { return (asked.client ^ asked.seq ^ uint64_t{asked.part} << 40) * UINT64_C(0x9e3779b97f4a7c15) >> 7; }
  };
};

/// The engines above rpc's server. Requests of one client start in the order of its calls, each once (but see on_request).
class Service {
 public:
  virtual ~Service() = default;
  /// Where the large payload of a request or of its granted data goes. Never null; discards for what makes no sense.
  virtual base::SinkRef place(const wire::Message& request, size_t bytes) = 0;
  /// A request starts. `staged` is the sink that holds `payload`, or null if it is valid during the call only. A Get may start
  /// again after its answer was lost.
  virtual void on_request(const Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                          const base::SinkRef& staged) = 0;
  /// The payload of a request that was granted.
  virtual void on_data(const Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) = 0;
  /// The client gives up waiting. Either answer with MV_ETIMEOUT and who was missing, or let it take its course.
  virtual void on_cancel(const Asked& asked) = 0;
};

}  // namespace mv::rpc
