#pragma once
// What every transport is: a Link that can also listen. Inproc, TCP and further ones implement this and nothing else.
//
// Threads: everything on the loop that the transport was made with (see loop/loop.hpp); a transport takes no locks for it and calls
// LinkEvents there, never from within a call of its own.
// Ownership: the loop and the LinkEvents are the maker's and outlive the transport. A transport owns its connections and their
// descriptors, registers these with Loop::descriptors() (for a forked child), and closes them when it ends.

#include <functional>
#include <string>

#include "base/link.hpp"
#include "base/result.hpp"
#include "transport/loop/loop.hpp"

namespace mv::transport {

class Transport : public base::Link, public Flusher {
 public:
  /// Who hears of everything. Before any other call.
  virtual void attach(base::LinkEvents& events) = 0;

  /// Waits for dials at `address`; gives the address to dial, with port 0 resolved. Blocks for a name lookup at most.
  /// MV_EADDRINUSE, MV_EINVAL for an address that this transport does not understand, MV_ESYSTEM.
  virtual base::Result<std::string> listen(const std::string& address) = 0;
  /// As listen(), on a socket that listens already; owned from now on, also on an error. MV_ENOSYS where a transport has none.
  virtual base::Result<std::string> adopt(int listening_fd) = 0;

  /// Hands what send() queued to the kernel. The loop calls it whenever it is about to block.
  void flush() override = 0;

  /// Says goodbye to every peer, sends what is queued, hears nothing any more, and calls `stopped` (on the loop) when all
  /// connections are closed, or after kLinger at the latest. Once. The destructor closes at once and tells nobody.
  virtual void stop(std::function<void()> stopped) = 0;

  /// Cuts the connection to `peer` as a failing network would: both sides notice, and try to mend it. For tests and Faulty.
  virtual void cut(base::Peer peer) = 0;

  static constexpr base::Nanos kLinger = std::chrono::seconds(1);
};

}  // namespace mv::transport
