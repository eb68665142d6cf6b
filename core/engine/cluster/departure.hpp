#pragma once
// The end of this node's part: a worker that has finished, a process that has failed, or a server that has drained.

#include <functional>
#include <string>
#include <vector>

#include "base/link.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/master_calls.hpp"
#include "engine/cluster/roster.hpp"
#include "engine/rpc/client.hpp"

namespace mv::cluster {

/// Owns what is to run when all members know of this node's end. Sends Leave and Abort. Loop thread only.
class Departure {
 public:
  Departure(base::Link& link, rpc::Client& client, const Roster& roster, const Standing& standing, Contacts& contacts, MasterCalls& calls)
      : link_(link), client_(client), roster_(roster), standing_(standing), contacts_(contacts), calls_(calls) {}

  /// See Cluster::leave(), abort() and await_goodbyes().
  void leave(const std::vector<rpc::PendingRef>& pendings);
  void abort(const std::string& why, std::function<void()> told);
  void await_goodbyes(std::function<void()> told);

  /// Notifies a member that has connected after leave(); does nothing before.
  void leave_late(base::Peer peer);
  void send_abort(base::Peer to, const std::string& why);
  /// This node has aborted, or has drained: losses are not reported any more.
  bool has_begun() const { return told_ != nullptr; }
  /// A connection has ended: perhaps all members know now. A peer that has read the message closes its connection.
  void look_again();

 private:
  void send_leave(base::Peer to, rpc::PendingRef pending);

  base::Link& link_;
  rpc::Client& client_;
  const Roster& roster_;
  const Standing& standing_;
  Contacts& contacts_;
  MasterCalls& calls_;
  wire::FrameBuilder builder_;
  bool has_left_ = false;       ///< leave() was called
  std::function<void()> told_;  ///< see abort() and await_goodbyes()
};

}  // namespace mv::cluster
