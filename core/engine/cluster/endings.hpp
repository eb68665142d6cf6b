#pragma once
// The master's decisions about members that are lost or have finished.

#include "engine/cluster/barrier.hpp"
#include "engine/cluster/decisions.hpp"
#include "engine/cluster/election.hpp"
#include "engine/cluster/publisher.hpp"
#include "engine/cluster/relocation.hpp"
#include "engine/cluster/roster.hpp"

namespace mv::cluster {

/// Declares members lost or finished, so that all others learn of it, the barrier does not wait for them, and other
/// servers take over their tables: with a keeper in the next decided view, otherwise at once. Loop thread only.
class Endings {
 public:
  Endings(Roster& roster, Barrier& barrier, Publisher& publisher, Decisions& decisions, const Election& election, Relocation& relocation)
      : roster_(roster), barrier_(barrier), publisher_(publisher), decisions_(decisions), election_(election), relocation_(relocation) {}

  /// This master has lost a member.
  void lost(Member& member, bool fails_barriers, const base::Status& why);
  /// This member has finished, as the master's view says already.
  void finished(base::Peer peer);
  /// With a keeper: decides what has happened since this node asked to be the master.
  void decide_noticed();
  /// Without replicas, while this node applies the view that makes it the master: it decides about all members
  /// afterwards.
  void hold(bool on) { is_held_ = on; }

 private:
  Roster& roster_;
  Barrier& barrier_;
  Publisher& publisher_;
  Decisions& decisions_;
  const Election& election_;
  Relocation& relocation_;
  bool is_held_ = false;
};

}  // namespace mv::cluster
