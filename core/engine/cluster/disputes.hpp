#pragma once
// Two members have lost each other, and the master hears both.

#include <map>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/heartbeat.hpp"
#include "engine/cluster/keeping.hpp"
#include "engine/cluster/roster.hpp"

namespace mv::cluster {

/// Owns the reports of such members, until one of the two is lost. A member sends Unreachable at each beat; the master
/// handles it. Loop thread only.
class Disputes {
 public:
  struct Verdict {
    base::Peer lost = base::kNobody;
    std::string why;
  };

  Disputes(const base::Clock& clock, base::Link& link, const Roster& roster, const Contacts& contacts, const Heartbeat& heartbeat, const Keeping& keeping)
      : clock_(clock), link_(link), roster_(roster), contacts_(contacts), heartbeat_(heartbeat), keeping_(keeping) {}

  /// Reports those that this member can't reach to the master.
  void report();
  /// On the master: the one that is lost; nullopt if the report says nothing, or the next one will tell.
  std::optional<Verdict> judge(base::Peer from, const wire::Unreachable& note);
  /// This peer is lost.
  void forget(base::Peer peer) { accused_.erase(peer); }

 private:
  struct Accused {
    base::Peer by;
    base::Nanos since;
  };
  base::Peer choose_lost(const Member& reporter, const Member& reported);
  bool can_spare(const Member& server) const;

  const base::Clock& clock_;
  base::Link& link_;
  const Roster& roster_;
  const Contacts& contacts_;
  const Heartbeat& heartbeat_;
  const Keeping& keeping_;
  wire::FrameBuilder builder_;
  std::map<base::Peer, Accused> accused_;  ///< workers and servers that a server has reported, and the first such server
};

}  // namespace mv::cluster
