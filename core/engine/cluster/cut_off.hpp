#pragma once
// This node is cut off from the decisions about the members, with replicas.

#include <functional>
#include <utility>

#include "base/link.hpp"
#include "engine/cluster/barrier.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/decisions.hpp"
#include "engine/cluster/departure.hpp"
#include "engine/cluster/election.hpp"
#include "engine/cluster/held_requests.hpp"
#include "engine/cluster/keeping.hpp"
#include "engine/cluster/master_calls.hpp"
#include "engine/cluster/owner.hpp"
#include "engine/cluster/roster.hpp"

namespace mv::cluster {

/// Ends what waits for a decision: calls of this node and requests of others. A node whose tables others may serve also
/// leaves the others, with Abort, so that nobody waits for it. Loop thread only.
class CutOff {
 public:
  /// @param lose  this peer is lost
  CutOff(base::Link& link, Owner& owner, Contacts& contacts, const Roster& roster, Standing& standing, Barrier& barrier, HeldRequests& held_requests, Keeping& keeping,
         Decisions& decisions, Election& election, MasterCalls& calls, Departure& departure, std::function<void(base::Peer peer, const base::Status& why)> lose)
      : link_(link),
        owner_(owner),
        contacts_(contacts),
        roster_(roster),
        standing_(standing),
        barrier_(barrier),
        held_requests_(held_requests),
        keeping_(keeping),
        decisions_(decisions),
        election_(election),
        calls_(calls),
        departure_(departure),
        lose_(std::move(lose)) {}

  /// This node can take no part any more: it was declared lost, or nobody can decide about the members.
  void cut_off(const base::Status& why);
  /// Whether this process is a member of a newer decided view, or has drained. If not, the others have declared it lost:
  /// it is cut off.
  bool is_in(const View& newer);
  /// This node is cut off, and has lost this member: a server whose lost workers nobody can confirm is deposed.
  void lost(const Member& member);
  /// This node hears of decisions again: it has waited too short a time for another master. False: it is deposed.
  bool reconnect();

 private:
  void declared_lost(const base::Status& why);
  void depose();

  base::Link& link_;
  Owner& owner_;
  Contacts& contacts_;
  const Roster& roster_;
  Standing& standing_;
  Barrier& barrier_;
  HeldRequests& held_requests_;
  Keeping& keeping_;
  Decisions& decisions_;
  Election& election_;
  MasterCalls& calls_;
  Departure& departure_;
  const std::function<void(base::Peer peer, const base::Status& why)> lose_;
};

}  // namespace mv::cluster
