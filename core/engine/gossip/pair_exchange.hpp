#pragma once
// Symmetric exchanges: two nodes each take of the other's version, or neither does.
//
//   proposer                         acceptor
//   Propose(version) ------------->  in no fetch of its own: Wait, and it is accepted when one begins; in another exchange: Decline
//                    <-------------  Agree(version)
//   fetches that version             fetches this version, both at once
//                    <-------------  Ready: it holds all of it. Said again and again until it hears
//   holds all, too:
//   Commit           ------------->  valid on both sides
//
// Only the proposer decides, so neither waits for the other in a circle; and whoever gives up says Withdraw. What is left is what no
// protocol between two can rule out: an acceptor that is Ready when the proposer is lost, or when its own time is up, can't know. It takes
// nothing then, and counts it as unsettled; if the proposer lives it learns from the late Withdraw that its half was the only one.
//
// Proposals get in each other's way: of two the one with the greater random priority counts, so some pair always comes together. A node whose
// proposal is only noted (Wait) takes whatever else comes.

#include <cstdint>

#include "base/clock.hpp"
#include "base/link.hpp"

namespace mv::gossip {

/// One that was made, by its sender's number.
struct Proposal {
  uint64_t number = 0, version = 0, priority = 0;
};

/// This node's part in an exchange that is not over.
struct PairExchange {
  enum class Stage : uint8_t {
    kProposed,
    kNoted,      ///< the partner has said Wait
    kAgreed,
    kOnlyTheirs, ///< the proposer has heard Ready, and does not hold all yet
    kWhole,      ///< this node holds all; an acceptor has said Ready
  };
  base::Peer life = base::kNobody;  ///< the partner's
  uint64_t number = 0, priority = 0;
  bool proposer = false;
  Stage stage = Stage::kProposed;
  base::Nanos said_ready{0};

  bool is_agreed() const { return stage >= Stage::kAgreed; }
  /// An acceptor that has said that it is ready, and waits for the proposer's word.
  bool awaits_word() const { return !proposer && stage == Stage::kWhole; }
};

struct ExchangeTally {
  uint64_t valid = 0;      ///< on both sides, as far as this one knows
  uint64_t half = 0;       ///< made valid here, though the partner had given it up
  uint64_t unsettled = 0;  ///< given up here, and the partner did not say whether it had, too
};

}  // namespace mv::gossip
