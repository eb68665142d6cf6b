#pragma once
// Requests of members that take this node for the master before it is.

#include <cstddef>
#include <utility>
#include <vector>

#include "engine/cluster/roster.hpp"
#include "engine/rpc/server.hpp"

namespace mv::cluster {

/// Keeps the requests to the master (Barrier, Copied, Drain, Resize, HandOver) of members that have a newer view, and
/// know earlier than this node itself that it is the master. They are carried out when it is, or fail when it will not
/// be. Loop thread only.
class HeldRequests {
 public:
  using Held = std::pair<rpc::Asked, std::vector<std::byte>>;  ///< with the header of the request

  HeldRequests(rpc::Server& server, const Roster& roster, const Standing& standing) : server_(server), roster_(roster), standing_(standing) {}

  /// Keeps this request, or fails it if no process is or will be the master.
  void keep(const rpc::Asked& asked, const wire::Message& request);
  /// This node is the master now: returns what it has kept.
  std::vector<Held> take() { return std::exchange(held_, {}); }
  /// This node will not become the master. @param why  MV_EDISAGREE: another node is the master, and will be asked
  void fail_all(const base::Status& why);
  /// Nobody gets an answer.
  void clear() { held_.clear(); }
  /// This member is lost.
  void forget(base::Peer peer);
  /// True if this request, which was canceled, waited here. It is then answered.
  bool withdraw(const rpc::Asked& asked);

 private:
  void fail(const rpc::Asked& asked, const wire::Message& request, const base::Status& why);

  rpc::Server& server_;
  const Roster& roster_;
  const Standing& standing_;
  std::vector<Held> held_;
};

}  // namespace mv::cluster
