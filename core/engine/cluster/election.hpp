#pragma once
// The next master after the loss of one, with replicas.

#include <algorithm>
#include <string>

#include "base/clock.hpp"
#include "engine/cluster/decisions.hpp"
#include "engine/cluster/keeping.hpp"
#include "engine/cluster/roster.hpp"

namespace mv::cluster {

/// Owns the times of a node that has lost the master: a server writes a view in which it is the master itself, the ones
/// with lower ranks first, and all nodes give up after a while. Loop thread only.
class Election {
 public:
  Election(const base::Clock& clock, const Roster& roster, const Standing& standing, Keeping& keeping, Decisions& decisions)
      : clock_(clock), roster_(roster), standing_(standing), keeping_(keeping), decisions_(decisions) {}

  /// The master is lost, as far as this node knows. A server that can take its place tries to.
  void await_master(const base::Status& why);
  /// Something has changed: perhaps too few are left to choose a master.
  void look_again() { await_master(master_lost_); }
  /// The master is lost, and another process may take its place.
  bool awaits_master() const { return awaited_until_ != base::kNever; }
  const base::Status& why_lost() const { return master_lost_; }
  /// There is a master, or this node is cut off.
  void end() { awaited_until_ = elect_at_ = tell_at_ = base::kNever; }
  /// The newest view names the lost master still: this server writes one in which it is the master itself.
  void stand();
  /// A view is decided that this node has not written, as far as it knows.
  void heard_of_decision() { may_be_master_ = false; }
  /// This node may be the master, and not know it yet.
  bool may_be_master() const { return may_be_master_; }
  /// Whether those that live can decide about the next view, without the master if this node has lost it.
  bool can_replace_master() const;
  /// Why this node waits no longer.
  std::string why_no_master() const;

  base::Nanos next_deadline() const { return std::min({awaited_until_, elect_at_, tell_at_}); }
  /// What is due, except for the end of the wait.
  void tick(base::Nanos now);
  bool is_over(base::Nanos now) const { return now >= awaited_until_; }

 private:
  const base::Clock& clock_;
  const Roster& roster_;
  const Standing& standing_;
  Keeping& keeping_;
  Decisions& decisions_;
  base::Status master_lost_;
  bool may_be_master_ = false;  ///< this server's write as the next master may be in the keeper, which has not said so
  base::Nanos awaited_until_ = base::kNever, elect_at_ = base::kNever;  ///< when to give up, and when this server stands for master
  base::Nanos tell_at_ = base::kNever;                                  ///< when to tell the servers of the newest view
};

}  // namespace mv::cluster
