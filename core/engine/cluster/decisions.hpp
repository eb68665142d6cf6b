#pragma once
// The master's decisions about the members, with replicas.

#include <cstddef>
#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "engine/cluster/barrier.hpp"
#include "engine/cluster/keeping.hpp"
#include "engine/cluster/publisher.hpp"
#include "engine/cluster/roster.hpp"

namespace mv::cluster {

/// Owns the changes that the master wants to make to the view, until a view with them is decided. All changes that come
/// while one view is being written go into the next one. Meanwhile the barrier releases nobody. Loop thread only.
class Decisions {
 public:
  /// Changes the next view; or an error: then it has changed nothing.
  using Change = std::function<base::Status(View& next)>;
  using Decided = std::function<void(const base::Status& refused, const View& view)>;

  /// @param holds  this view is decided, and all members are told: this node acts on it
  Decisions(const base::Clock& clock, const Roster& roster, const Standing& standing, Keeping& keeping, Publisher& publisher, Barrier& barrier,
            std::function<void(const View& view)> holds)
      : clock_(clock), roster_(roster), standing_(standing), keeping_(keeping), publisher_(publisher), barrier_(barrier), holds_(std::move(holds)) {}

  /// Lets `change` decide upon the next view, and calls `done` when that view holds, with it, before this node acts on
  /// it; or with an error.
  void decide(Change change, Decided done = nullptr);
  /// A worker has finished.
  void decide_end(base::Peer worker);
  bool empty() const { return decisions_.empty(); }
  /// Writes a view with the decisions, unless something is being written.
  void write_next();
  /// `next` is decided, with the first `count` of the decisions in it. The others hear of it before this node acts on
  /// it.
  void hold(const View& next, size_t count = 0);
  /// This node is the master no longer, or is cut off.
  void drop(const base::Status& why);
  /// Another process is the master.
  void stop_waiting() { undecided_since_ = tell_undecided_at_ = base::kNever; }

  /// This node is the master, and decisions wait: the keeper, or most of those that vote, may not answer.
  bool is_undecided() const { return roster_.is_master() && undecided_since_ != base::kNever; }
  /// When a master that can't decide gives up.
  base::Nanos patience_until() const;
  /// Why it does.
  std::string why_undecided() const;
  /// Whether all members should hear now that the master can't decide; they expect that from time to time.
  bool is_to_tell(base::Nanos now);
  base::Nanos next_deadline() const;

 private:
  struct Decision {
    Change change;
    Decided done;
    base::Status refused = {};
  };
  void end_first(size_t count, const View& view);
  base::Nanos tell_every() const { return roster_.self().heartbeat_timeout / 4; }

  const base::Clock& clock_;
  const Roster& roster_;
  const Standing& standing_;
  Keeping& keeping_;
  Publisher& publisher_;
  Barrier& barrier_;
  const std::function<void(const View& view)> holds_;
  std::deque<Decision> decisions_;
  size_t writing_ = 0;       ///< the first decisions, which the write in progress has
  bool is_holding_ = false;  ///< this node is acting on a decided view
  base::Nanos undecided_since_ = base::kNever, tell_undecided_at_ = base::kNever;
};

}  // namespace mv::cluster
