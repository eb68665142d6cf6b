#pragma once
// What the membership protocol reports to the member that it is a part of.

#include <string>
#include <vector>

#include "base/link.hpp"
#include "base/result.hpp"
#include "engine/cluster/view.hpp"
#include "engine/cluster/wait.hpp"

namespace mv::cluster {

/// Loop thread only.
class Owner {
 public:
  virtual ~Owner() = default;
  /// The ranks are known; requests may arrive from now on.
  virtual void on_view(const View& view) = 0;
  /// All members that this node needs are connected and ready.
  virtual void on_ready() = 0;
  /// on_ready() will never be called.
  virtual void on_failed(const base::Status& why) = 0;
  /// Each is called at most once for a member; on_member_finished() also for this node. A member that only this node had
  /// lost may finish afterwards.
  virtual void on_member_finished(const Member& member) = 0;
  virtual void on_member_lost(const Member& member, const base::Status& why) = 0;
  /// Nothing of this worker counts from now on. With a keeper, only the master decides that: as long as this node alone
  /// has lost the worker, the worker may continue elsewhere, and repeat there the requests that this node has not answered. May be called
  /// again for the same worker.
  virtual void on_worker_lost(const Member& /*worker*/, const base::Status& /*why*/) {}
  /// This node is cut off for good, see Standing::is_deposed(). From now on, nothing that it does may reach its back-ups.
  virtual void on_deposed() {}
  /// A new process has taken the place of a lost worker or server.
  virtual void on_member_joined(const Member& member) = 0;
  /// This node has lost a server, whose worker may have finished before. The master may then declare the server lost
  /// and name a stand-in: see Member::is_out.
  virtual void on_server_missed(const Member&, const base::Status&) {}
  /// The master has decided which process serves the part of this server from now on, keeps a copy of it, or gets a
  /// copy.
  virtual void on_part_moved(const Member& /*part*/) {}
  /// A server is draining, perhaps this one, because fewer servers are wanted: its parts are being copied to
  /// others.
  virtual void on_member_draining(const Member& /*member*/) {}
  /// The master has given this node's parts to their new servers: see Cluster::hand_over().
  virtual void on_drained() {}
  /// Another process is the master now. Requests to the former master have ended without an answer, or will.
  virtual void on_new_master() {}
  /// This node will hear of no more decisions about the members; see Standing::is_deposed().
  virtual void on_cut_off(const base::Status&) {}
  /// A view came from the master, or the master is lost: all_workers_gone() may have changed.
  virtual void on_news() = 0;
  /// Requests of this peer were dropped before this node knew it as a member: it should send them again.
  virtual void on_welcome(base::Peer) {}
  /// The waits of all members that this node knows of, for messages.
  virtual std::vector<Wait> known_waits() const { return {}; }
  /// The call in which this node's program waits, for messages of other nodes; empty if there is none.
  virtual std::string own_wait() const { return {}; }
};

}  // namespace mv::cluster
