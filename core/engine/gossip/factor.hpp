#pragma once
// The factor of an average, the weight of the peer's parameters: p = factor * peer + (1 - factor) * p.

#include "base/result.hpp"

namespace mv::gossip {

/// The age of a node's model, in updates, and its loss.
struct Progress {
  double clock = 0;
  double loss = 0;
};

enum class Method {
  kConstant,  ///< always the same factor
  kClock,     ///< peer_clock / (clock + peer_clock)
  kLoss,      ///< loss / (loss + peer_loss): the higher a node's own loss, the more it takes
};
enum class LossWeighting {
  kOwn,   ///< as dpwa's program computes it
  kPeer,  ///< peer_loss / (loss + peer_loss), as dpwa's page describes it
};

struct Interpolation {
  Method method = Method::kConstant;
  double constant = 0.5;
  LossWeighting loss_weighting = LossWeighting::kOwn;
  /// If it is not 0 and the node's own loss is below it, the factor is multiplied by loss / threshold, so good models
  /// may diverge.
  double divergence_threshold = 0;
};

/// The factor for this node, from 0 to 1 for any clocks and losses; 0/0 counts as one half. MV_ENONFINITE for a loss or
/// clock that is not finite.
base::Result<double> factor(const Interpolation& how, const Progress& own, const Progress& peer);

/// The factor of an exchange in which the peer averages with this node's model, too. The constant factor is the same
/// for both sides: the divergence threshold scales it by the smaller loss. Factors by clocks or losses add up to 1, so
/// both sides arrive at one model.
base::Result<double> exchanged_factor(const Interpolation& how, const Progress& own, const Progress& peer);

/// The clock of a model that is averaged with this factor.
inline double mixed_clock(double factor, double own, double peer) { return factor * peer + (1 - factor) * own; }

}  // namespace mv::gossip
