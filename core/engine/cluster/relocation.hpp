#pragma once
// The master's decisions about which servers have which parts of the tables.

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/decisions.hpp"
#include "engine/cluster/heartbeat.hpp"
#include "engine/cluster/owner.hpp"
#include "engine/cluster/publisher.hpp"
#include "engine/cluster/roster.hpp"
#include "engine/rpc/client.hpp"
#include "engine/rpc/server.hpp"

namespace mv::cluster {

/// Handles Copied, Drain, Resize and HandOver on the master: a part has a back-up again, a server is to end, the number
/// of servers is to change, and servers have handed parts over. succession.hpp chooses the servers; with a keeper, the
/// view is decided before anyone acts on it. Loop thread only.
class Relocation {
 public:
  /// @param give_role  without replicas: this node, the master, has drained, and that server is the master from now on
  Relocation(rpc::Client& client, rpc::Server& server, Owner& owner, Roster& roster, Contacts& contacts, const Heartbeat& heartbeat, Publisher& publisher,
             Decisions& decisions, std::function<void(base::Peer to)> give_role)
      : client_(client),
        server_(server),
        owner_(owner),
        roster_(roster),
        contacts_(contacts),
        heartbeat_(heartbeat),
        publisher_(publisher),
        decisions_(decisions),
        give_role_(std::move(give_role)) {}

  void copied(const rpc::Asked& asked, const wire::Copied& note);
  void drain(const rpc::Asked& asked);
  void resize(const rpc::Asked& asked, uint32_t servers);
  /// If there are more servers than were asked for last, those with the highest ranks are to end.
  void end_surplus();
  void hand_over(const rpc::Asked& asked, const wire::HandOver& request);
  /// Without a keeper: this member is lost, and other servers take over its tables. True if values are lost.
  bool declare_out(Member& member);

  /// Requests for some number of servers that this node has accepted as the master.
  uint64_t resizes() const { return resizes_; }

 private:
  base::Status begin_to_have(uint32_t servers);
  void move_asked(const rpc::Asked& asked, const std::vector<uint32_t>& numbers);
  base::Peer successor() const;

  rpc::Client& client_;
  rpc::Server& server_;
  Owner& owner_;
  Roster& roster_;
  Contacts& contacts_;
  const Heartbeat& heartbeat_;
  Publisher& publisher_;
  Decisions& decisions_;
  const std::function<void(base::Peer to)> give_role_;
  wire::FrameBuilder builder_;
  uint64_t resizes_ = 0;
};

}  // namespace mv::cluster
