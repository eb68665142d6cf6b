#pragma once
// The protocol of symmetric exchanges: two nodes average with each other's version, or neither does.
//
//   proposer                         acceptor
//   Propose(version) ------------->  no own fetch: Wait, and Agree when one begins; in another exchange: Decline
//                    <-------------  Agree(version)
//   fetches that version             fetches this version, both at once
//                    <-------------  Ready: it holds all of it. Repeated until the proposer answers
//   holds all, too:
//   Commit           ------------->  valid on both sides
//
// Only the proposer decides, so there is no circular wait. A side that gives up sends Withdraw. One case remains, which
// no protocol of two parties can rule out: an acceptor that is Ready when the proposer is lost, or when its own time is
// up, cannot know the decision. It then takes nothing, and counts the exchange as unsettled. If the proposer lives and
// has committed, the late Withdraw reports to it that only its own half is valid.
//
// Proposals can collide: of two, the one with the greater random priority wins, so some pair always succeeds. A node
// whose proposal was answered with Wait accepts any other proposal.

#include <cstdint>

#include "base/clock.hpp"
#include "base/link.hpp"

namespace mv::gossip {

/// A proposal; its sender gives it the number.
struct Proposal {
  uint64_t number = 0, version = 0, priority = 0;
};

/// This node's part in an exchange that is not over.
struct PairExchange {
  enum class Stage : uint8_t {
    kProposed,
    kNoted,      ///< the partner has answered Wait
    kAgreed,
    kOnlyTheirs, ///< the proposer has received Ready, and does not hold all yet
    kWhole,      ///< this node holds all; an acceptor has sent Ready
  };
  base::Peer life = base::kNobody;  ///< the partner's incarnation
  uint64_t number = 0, priority = 0;
  bool proposer = false;
  Stage stage = Stage::kProposed;
  base::Nanos said_ready{0};

  bool is_agreed() const { return stage >= Stage::kAgreed; }
  /// Whether this is an acceptor that has sent Ready and waits for the proposer's decision.
  bool awaits_word() const { return !proposer && stage == Stage::kWhole; }
};

struct ExchangeTally {
  uint64_t valid = 0;      ///< on both sides, as far as this node knows
  uint64_t half = 0;       ///< committed here, though the partner had given it up
  uint64_t unsettled = 0;  ///< given up here without knowing the partner's decision
};

}  // namespace mv::gossip
