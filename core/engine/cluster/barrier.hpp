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
/// in step. Loop thread only.
class Barrier {
 public:
  Barrier(rpc::Server& rpc, const View& view) : rpc_(rpc), view_(view) {}

  void enter(const rpc::Asked& asked, base::Nanos now);
  /// True if the request waited here. It is then answered with MV_ETIMEOUT, the names of the missing workers, and
  /// `doing(worker)`, what each does instead.
  bool withdraw(const rpc::Asked& asked, const std::function<std::string(base::Peer)>& doing);
  /// Whether the last thing that this worker did here is that it withdrew.
  bool has_given_up(base::Peer worker) const { return given_up_.contains(worker); }
  /// The view has changed: a member has finished, or is lost because of `why`.
  void finished(base::Peer peer);
  void lost(base::Peer peer, const base::Status& why);

  std::vector<Wait> waits(base::Nanos now) const;

 private:
  struct Arrival {
    rpc::Asked asked;
    base::Nanos since;
  };
  void settle();
  std::vector<base::Peer> awaited() const;

  rpc::Server& rpc_;
  const View& view_;
  wire::FrameBuilder builder_;
  std::map<base::Peer, std::deque<Arrival>> waiting_;  ///< a worker with several threads may wait several times
  std::set<base::Peer> given_up_;
  std::map<base::Peer, std::deque<base::Status>> untold_;  ///< unreported losses; each fails one barrier
};

}  // namespace mv::cluster
