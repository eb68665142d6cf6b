#pragma once
// How much of a peer's parameters a node takes: p = factor * peer + (1 - factor) * p.

#include "base/result.hpp"

namespace mv::gossip {

/// One side's age, in updates, and its loss.
struct Progress {
  double clock = 0;
  double loss = 0;
};

enum class Method {
  kConstant,  ///< always the same factor
  kClock,     ///< peer_clock / (clock + peer_clock)
  kLoss,      ///< loss / (loss + peer_loss): the worse one's own loss is, the more it takes
};
enum class LossWeighting {
  kOwn,   ///< as dpwa's program computes it
  kPeer,  ///< peer_loss / (loss + peer_loss), as dpwa's page describes it
};

struct Interpolation {
  Method method = Method::kConstant;
  double constant = 0.5;
  LossWeighting loss_weighting = LossWeighting::kOwn;
  /// Where it is not 0 and the own loss is below it, the factor shrinks by loss / threshold: models that are good diverge.
  double divergence_threshold = 0;
};

/// In 0 .. 1 whatever the clocks and losses are; 0/0 counts as one half. MV_ENONFINITE for a loss or clock that is no finite number.
base::Result<double> factor(const Interpolation& how, const Progress& own, const Progress& peer);

/// That of an exchange in which the peer does the same with this node's model: the constant one, of which the divergence threshold leaves both
/// what it leaves the one with the smaller loss, is the same for both; those of clocks and losses add up to 1, so that both come to one model.
base::Result<double> exchanged_factor(const Interpolation& how, const Progress& own, const Progress& peer);

/// The clock of what averaging with this factor makes.
inline double mixed_clock(double factor, double own, double peer) { return factor * peer + (1 - factor) * own; }

}  // namespace mv::gossip
