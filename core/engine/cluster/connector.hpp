#pragma once
// Which peers this node dials, and when again.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/roster.hpp"

namespace mv::cluster {

/// Which of two members dials. kHigherRank: both sides want the connection. kSelf: the other side need not know that it
/// is wanted.
enum class Dialer { kHigherRank, kSelf };

/// Owns the addresses that are dialed again, because no process has answered there. Dials members until they are there,
/// or until this node has to notice their loss by itself. Loop thread only.
class Connector {
 public:
  /// A member that is lost, because no connection can be made.
  struct Loss {
    base::Peer peer = base::kNobody;
    base::Status why;
  };

  Connector(const base::Clock& clock, base::Link& link, const Roster& roster, Contacts& contacts)
      : clock_(clock), link_(link), roster_(roster), contacts_(contacts) {}

  /// Connects this node with a member that is not the master.
  void want(base::Peer peer, Dialer dialer);
  /// Connects with this member. Its silence counts from now on.
  void meet(base::Peer peer);
  void dial_later(const std::string& address);
  /// No address is dialed again.
  void stop() { redial_.clear(); }
  base::Nanos next_deadline() const;
  /// The addresses to dial again now; they are forgotten here.
  std::vector<std::string> due(base::Nanos now);
  /// Once this node is ready: dials a member again, until it is lost.
  std::optional<Loss> dial_failed(const std::string& address, const base::Status& why);

 private:
  bool is_refused_for_long(const Member& member, Contact& contact, const base::Status& why);

  const base::Clock& clock_;
  base::Link& link_;
  const Roster& roster_;
  Contacts& contacts_;
  std::map<std::string, base::Nanos> redial_;  ///< and when
};

}  // namespace mv::cluster
