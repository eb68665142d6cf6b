#pragma once
// Whose messages are processed: those of members, and a few of processes that are to become members.

#include <functional>
#include <utility>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/founding.hpp"
#include "engine/cluster/newcomers.hpp"
#include "engine/cluster/owner.hpp"
#include "engine/cluster/roster.hpp"

namespace mv::cluster {

/// Decides about the messages of peers that are not members, and ends the connections of those that do not become
/// members. Its state, such as the number of their messages, is in the contacts. Loop thread only.
class Strangers {
 public:
  /// @param turned_away  this peer's connection was closed
  Strangers(const base::Clock& clock, base::Link& link, Owner& owner, const Roster& roster, const Standing& standing, Contacts& contacts, const Founding& founding, const Newcomers& newcomers,
            std::function<void(base::Peer peer, const base::Status& why)> turned_away)
      : clock_(clock),
        link_(link),
        owner_(owner),
        roster_(roster),
        standing_(standing),
        contacts_(contacts),
        founding_(founding),
        newcomers_(newcomers),
        turned_away_(std::move(turned_away)) {}

  /// See Cluster::hears_stranger().
  bool hears(base::Peer from, const wire::Message& message, Sender sender);
  /// Makes new members retransmit requests that were dropped before this node knew them as members.
  void welcome();
  /// At each beat: turns those away that have had the time to join.
  void watch(base::Nanos now);

 private:
  void turn_away(base::Peer peer, rpc::Seq request, const base::Status& why);
  bool may_yet_join(base::Peer peer) const;

  const base::Clock& clock_;
  base::Link& link_;
  Owner& owner_;
  const Roster& roster_;
  const Standing& standing_;
  Contacts& contacts_;
  const Founding& founding_;
  const Newcomers& newcomers_;
  const std::function<void(base::Peer peer, const base::Status& why)> turned_away_;
  wire::FrameBuilder builder_;
};

}  // namespace mv::cluster
