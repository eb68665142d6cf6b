#pragma once
// The role of the master moves to another server, without replicas.

#include "engine/cluster/barrier.hpp"
#include "engine/cluster/connector.hpp"
#include "engine/cluster/endings.hpp"
#include "engine/cluster/master_calls.hpp"
#include "engine/cluster/newcomers.hpp"
#include "engine/cluster/publisher.hpp"
#include "engine/cluster/roster.hpp"

namespace mv::cluster {

/// Gives the role of the master away when this node has drained, and takes it when the former master has drained. What
/// the former master has not answered is asked again at the new one. Loop thread only.
class RoleTransfer {
 public:
  RoleTransfer(Roster& roster, Standing& standing, Barrier& barrier, Publisher& publisher, MasterCalls& calls, Newcomers& newcomers, Endings& endings,
               Connector& connector)
      : roster_(roster), standing_(standing), barrier_(barrier), publisher_(publisher), calls_(calls), newcomers_(newcomers), endings_(endings), connector_(connector) {}

  /// This master has drained, and decides no more.
  void give(base::Peer to);
  /// The former master has named this node. The view is applied.
  void take();

 private:
  Roster& roster_;
  Standing& standing_;
  Barrier& barrier_;
  Publisher& publisher_;
  MasterCalls& calls_;
  Newcomers& newcomers_;
  Endings& endings_;
  Connector& connector_;
};

}  // namespace mv::cluster
