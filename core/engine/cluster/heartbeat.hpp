#pragma once
// The pings between connected members, and their silence.

#include <set>
#include <vector>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/decisions.hpp"
#include "engine/cluster/master_calls.hpp"
#include "engine/cluster/owner.hpp"
#include "engine/cluster/roster.hpp"

namespace mv::cluster {

/// Owns the times of the beats. Sends Ping to all connected peers at each beat, ten times in a heartbeat's time-out, and
/// finds out who has been silent for longer than that. Loop thread only.
class Heartbeat {
 public:
  struct Silence {
    base::Peer peer = base::kNobody;
    base::Nanos span{0};
  };

  Heartbeat(const base::Clock& clock, base::Link& link, const Owner& owner, const Roster& roster, Contacts& contacts, const MasterCalls& calls,
            const Decisions& decisions)
      : clock_(clock), link_(link), owner_(owner), roster_(roster), contacts_(contacts), calls_(calls), decisions_(decisions) {}

  void start();
  void ping(base::Peer to, uint64_t asks = 0, uint64_t answers = 0);
  /// Pings all members that are connected.
  void ping_members();
  /// Sends a ping that asks for an answer to all connected peers.
  void ask_all();
  /// Pings all connected peers, except for the silent ones. Returns those.
  std::vector<Silence> beat(base::Nanos now);
  base::Nanos next_deadline() const { return next_beat_; }
  base::Nanos interval() const { return roster_.self().heartbeat_timeout / 10; }

  /// Whether nothing came from this peer for more than half of the time-out, now or a short time ago.
  bool was_silent(base::Peer peer) const;
  /// This process, and those that it heard from lately.
  std::set<base::Peer> heard() const;

 private:
  base::Nanos starved(base::Nanos now) const;

  const base::Clock& clock_;
  base::Link& link_;
  const Owner& owner_;
  const Roster& roster_;
  Contacts& contacts_;
  const MasterCalls& calls_;
  const Decisions& decisions_;
  wire::FrameBuilder builder_;
  base::Nanos next_beat_{0}, last_beat_{0};
};

}  // namespace mv::cluster
