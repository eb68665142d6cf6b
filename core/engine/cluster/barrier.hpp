#pragma once
// The master's side of mv_barrier().

#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/clock.hpp"
#include "engine/cluster/view.hpp"
#include "engine/cluster/wait.hpp"
#include "engine/rpc/server.hpp"

namespace mv::cluster {

/// Releases all workers when every live worker has entered the barrier. A loss is reported to each survivor once, at
/// the barrier in which it waits or at its next one. All survivors therefore fail the same number of barriers and stay
/// in step. Before a new master releases anyone, each worker tells it how many barriers it has passed: see take_over().
/// Loop thread only.
class Barrier {
 public:
  Barrier(rpc::Server& rpc, const View& view) : rpc_(rpc), view_(view) {}

  void enter(const rpc::Asked& asked, base::Nanos now);
  /// True if the request waited here. It is then answered with MV_ETIMEOUT, the names of the missing workers, and what
  /// each of them does instead: `doing(worker)`.
  bool withdraw(const rpc::Asked& asked, const std::function<std::string(base::Peer)>& doing);
  /// Whether the last action of this worker here was to withdraw.
  bool has_given_up(base::Peer worker) const { return given_up_.contains(worker); }
  /// The view has changed: a member has finished, or is lost because of `why`.
  void finished(base::Peer peer);
  void lost(base::Peer peer, const base::Status& why);
  /// The two steps of lost(). Between them, hold() can prevent releases.
  void gone(base::Peer peer);
  void tell_loss(const base::Status& why);
  void hold(bool on);

  /// This node is the master now. It releases nobody until follow() was called for each of these workers, or the worker
  /// is gone.
  void take_over(const std::vector<base::Peer>& workers);
  /// This worker has passed `passed` barriers. `told` others have failed, each of which reported a loss to it.
  void follow(base::Peer worker, uint64_t passed, uint64_t told);
  /// Whether some of these workers have not called follow() yet: passed() may still grow.
  bool awaits_followers() const { return !followers_.empty(); }
  /// How many barriers the workers have passed.
  uint64_t passed() const { return passed_; }
  /// Another node is the master now, and is asked again: what waits here is not answered.
  void forget() { waiting_.clear(); }
  /// This node is no longer the master, or can't decide anything. All waiting requests fail, and so do later ones.
  void close(const base::Status& why);

  std::vector<Wait> waits(base::Nanos now) const;

 private:
  struct Arrival {
    rpc::Asked asked;
    base::Nanos since;
  };
  bool owes(const rpc::Asked& asked);
  void catch_up();
  void settle();
  std::vector<base::Peer> awaited() const;

  rpc::Server& rpc_;
  const View& view_;
  wire::FrameBuilder builder_;
  std::map<base::Peer, std::deque<Arrival>> waiting_;  ///< a worker with several threads may wait several times
  std::set<base::Peer> given_up_;
  std::map<base::Peer, std::deque<base::Status>> untold_;  ///< unreported losses; each fails one barrier
  std::map<base::Peer, uint64_t> behind_;                  ///< barriers that the former master has released for others, but not for this one
  std::set<base::Peer> followers_;                         ///< workers that have not called follow() yet
  std::map<base::Peer, uint64_t> passed_by_;               ///< barriers that the others have passed
  uint64_t passed_ = 0;
  bool is_held_ = false;
  base::Status closed_;
};

}  // namespace mv::cluster
