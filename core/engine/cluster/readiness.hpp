#pragma once
// From this node's first view until it is connected with all members that it needs.

#include <cstddef>

#include "base/link.hpp"
#include "engine/cluster/connector.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/founding.hpp"
#include "engine/cluster/heartbeat.hpp"
#include "engine/cluster/joining.hpp"
#include "engine/cluster/keeping.hpp"
#include "engine/cluster/master_calls.hpp"
#include "engine/cluster/owner.hpp"
#include "engine/cluster/publisher.hpp"
#include "engine/cluster/roster.hpp"
#include "engine/cluster/strangers.hpp"

namespace mv::cluster {

/// Moves the phase of this node: it adopts the first view, waits for the pings of all members that it needs, and is
/// ready; or it fails. Loop thread only.
class Readiness {
 public:
  Readiness(base::Link& link, Owner& owner, Roster& roster, Standing& standing, Contacts& contacts, Publisher& publisher, Keeping& keeping, MasterCalls& calls,
            Heartbeat& heartbeat, Connector& connector, Joining& joining, Founding& founding, Strangers& strangers)
      : link_(link),
        owner_(owner),
        roster_(roster),
        standing_(standing),
        contacts_(contacts),
        publisher_(publisher),
        keeping_(keeping),
        calls_(calls),
        heartbeat_(heartbeat),
        connector_(connector),
        joining_(joining),
        founding_(founding),
        strangers_(strangers) {}

  /// This node is a member of this view.
  void adopt(View view);
  /// A member has been heard, or is not needed any more.
  void look_again();
  /// Has no effect once this node is ready.
  void fail(const base::Status& why);

 private:
  base::Link& link_;
  Owner& owner_;
  Roster& roster_;
  Standing& standing_;
  Contacts& contacts_;
  Publisher& publisher_;
  Keeping& keeping_;
  MasterCalls& calls_;
  Heartbeat& heartbeat_;
  Connector& connector_;
  Joining& joining_;
  Founding& founding_;
  Strangers& strangers_;
  size_t missing_ = 0;  ///< the place of a member that was not ready
};

}  // namespace mv::cluster
