#pragma once
// The first view: on the master, until the cluster is complete.

#include <functional>
#include <string>

#include "base/clock.hpp"
#include "engine/cluster/arrivals.hpp"
#include "engine/cluster/keeping.hpp"
#include "engine/cluster/publisher.hpp"
#include "engine/cluster/roster.hpp"
#include "engine/rpc/server.hpp"

namespace mv::cluster {

/// Owns the list of the processes that have arrived. When all have, checks whether they are a cluster, and answers their
/// Joins with the first view. Loop thread only.
class Founding {
 public:
  struct Events {
    /// All have the first view.
    std::function<void(View view)> founded;
    std::function<void(const base::Status& why)> failed;
  };

  Founding(const base::Clock& clock, rpc::Server& server, const Roster& roster, const Standing& standing, Keeping& keeping, Publisher& publisher, Events events)
      : clock_(clock), server_(server), roster_(roster), standing_(standing), keeping_(keeping), publisher_(publisher), events_(std::move(events)), arrivals_(roster.self()) {
    // Here and not in start(): a process may ask to join before start(), and is compared with the master itself.
    if (roster_.self().is_master) arrivals_.add_self();
  }

  void start();
  const Arrivals& arrivals() const { return arrivals_; }
  /// A process that fits the others has arrived.
  void add(const rpc::Asked& asked, const wire::Join& request);
  /// This process is lost.
  void forget(base::Peer peer) { arrivals_.lost(peer); }
  /// Answers this request, which was canceled, if it waits here.
  void withdraw(const rpc::Asked& asked);
  /// The cluster does not form.
  void fail_all(const base::Status& why);

  /// On the master while joining: which processes have not arrived; otherwise "".
  std::string missing() const { return is_founding() ? arrivals_.text() : ""; }
  /// Logs which processes are missing when joining takes long.
  void tell_of_missing(base::Nanos now);

 private:
  bool is_founding() const { return roster_.self().is_master && standing_.phase() == Phase::kJoining; }
  void complete_if_all_here();
  base::Status check(const View& view) const;
  void found(View view);

  const base::Clock& clock_;
  rpc::Server& server_;
  const Roster& roster_;
  const Standing& standing_;
  Keeping& keeping_;
  Publisher& publisher_;
  const Events events_;
  Arrivals arrivals_;
  base::Nanos started_ = base::kNever;
  base::Nanos notice_at_ = base::kNever;  ///< when to log the missing processes
};

}  // namespace mv::cluster
