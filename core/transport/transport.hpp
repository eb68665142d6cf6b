#pragma once
// The interface of all transports: a Link that can also listen. Inproc, shared memory, TCP, the fabric's two (UCX and MPI) and Faulty implement it.
//
// Threads: all calls are made on the loop that the transport was created with (see loop/loop.hpp). A transport
// therefore needs no locks. It calls LinkEvents on that loop, and never from within a call to the transport.
// Ownership: the creator owns the loop and the LinkEvents, which outlive the transport. A transport owns its
// connections and their descriptors. It registers the descriptors with Loop::descriptors(), for a forked child, and
// closes them when it ends.

#include <functional>
#include <string>

#include "base/link.hpp"
#include "base/result.hpp"
#include "transport/loop/loop.hpp"

namespace mv::transport {

class Transport : public base::Link, public Flusher {
 public:
  /// Sets the receiver of all events. Before any other call.
  virtual void attach(base::LinkEvents& events) = 0;

  /// Accepts dials at `address`. Returns the address to dial, with port 0 resolved. Blocks at most for a name lookup.
  /// MV_EADDRINUSE, MV_EINVAL for an address that this transport does not understand, MV_ESYSTEM.
  virtual base::Result<std::string> listen(const std::string& address) = 0;
  /// Like listen(), on a socket that is listening already. Takes ownership of it, also on an error. MV_ENOSYS if the
  /// transport does not support this.
  virtual base::Result<std::string> adopt(int listening_fd) = 0;

  /// Writes everything that send() has queued. The loop calls it whenever it is about to block.
  void flush() override = 0;

  /// Sends a goodbye to every peer after the queued messages, and ignores everything that arrives from now on. Calls
  /// `stopped` (on the loop) when all connections are closed, or after kLinger at the latest. To be called once. The
  /// destructor closes all connections at once, without a goodbye.
  virtual void stop(std::function<void()> stopped) = 0;

  /// Breaks the connection to `peer` as a failing network would: both sides notice, and try to reconnect where the
  /// transport does that. For tests and Faulty.
  virtual void cut(base::Peer peer) = 0;

  static constexpr base::Nanos kLinger = std::chrono::seconds(1);
};

}  // namespace mv::transport
