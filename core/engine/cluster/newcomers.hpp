#pragma once
// Processes that want a place in the complete cluster.

#include <vector>

#include "base/clock.hpp"
#include "engine/cluster/barrier.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/decisions.hpp"
#include "engine/cluster/election.hpp"
#include "engine/cluster/founding.hpp"
#include "engine/cluster/heartbeat.hpp"
#include "engine/cluster/owner.hpp"
#include "engine/cluster/publisher.hpp"
#include "engine/cluster/roster.hpp"
#include "engine/rpc/client.hpp"
#include "engine/rpc/server.hpp"

namespace mv::cluster {

/// A process takes this place. No request is made any more to the worker that had it; if it is still connected,
/// Cluster::on_lost() forgets it.
inline void forget_former(rpc::Client& client, const Member& place) {
  if (!place.is_server() && client.is_lost(place.peer)) client.forget(place.peer);
}

/// Owns the Joins that wait for a place. Handles Join: on the master, gives the process the place of a lost one, or in
/// an elastic cluster of a worker that has finished; on another node, names the master. Before the cluster is complete,
/// the process goes to Founding. Loop thread only.
class Newcomers {
 public:
  Newcomers(const base::Clock& clock, rpc::Client& client, rpc::Server& server, Owner& owner, Roster& roster, const Standing& standing, Contacts& contacts, Founding& founding,
            const Barrier& barrier, Publisher& publisher, Decisions& decisions, const Election& election, Heartbeat& heartbeat)
      : clock_(clock),
        client_(client),
        server_(server),
        owner_(owner),
        roster_(roster),
        standing_(standing),
        contacts_(contacts),
        founding_(founding),
        barrier_(barrier),
        publisher_(publisher),
        decisions_(decisions),
        election_(election),
        heartbeat_(heartbeat) {}

  void join(const rpc::Asked& asked, const wire::Message& message);
  /// Whether this process waits here for a place.
  bool has(base::Peer peer) const;
  /// This process is lost.
  void forget(base::Peer peer);
  /// True if this request, which was canceled, waited here. It is then answered.
  bool withdraw(const rpc::Asked& asked);

  /// Answers those that need not wait any longer.
  void settle();
  /// The same at the next tick: something has changed for those that wait.
  void settle_soon();
  /// Another process is the master: those that wait are sent there.
  void on_new_master() { settle_at_ = clock_.now(); }
  base::Nanos next_deadline() const { return settle_at_; }

 private:
  /// A waiting Join: the process whose place it wants may have died without this node having noticed.
  struct Early {
    rpc::Asked asked;
    std::vector<std::byte> header;
    base::Nanos until;
  };
  bool keep(const rpc::Asked& asked, const wire::Message& message);
  bool asks_master() const;
  bool may_become_vacant(const wire::Join& request, bool asked) const;
  bool is_to_be_vacant(const wire::Join& request) const;
  base::Status check(base::Peer joiner, const wire::Join& request) const;
  void settle(const Early& early, base::Nanos now);
  void admit(const rpc::Asked& asked, std::vector<std::byte> header);
  void answer(const rpc::Asked& asked, const View& view);
  void point_to_master(const rpc::Asked& asked);

  const base::Clock& clock_;
  rpc::Client& client_;
  rpc::Server& server_;
  Owner& owner_;
  Roster& roster_;
  const Standing& standing_;
  Contacts& contacts_;
  Founding& founding_;
  const Barrier& barrier_;
  Publisher& publisher_;
  Decisions& decisions_;
  const Election& election_;
  Heartbeat& heartbeat_;
  std::vector<Early> early_;
  base::Nanos settle_at_ = base::kNever;
};

}  // namespace mv::cluster
