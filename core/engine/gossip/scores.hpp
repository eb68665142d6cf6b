#pragma once
// The choice of a peer by its score, which depends on its past answers, and by chance.

#include <cstddef>
#include <span>

#include "base/clock.hpp"
#include "engine/gossip/rng.hpp"

namespace mv::gossip {

/// The score of a peer: dpwa's flow control, with two differences. A score recovers slowly by itself, so no peer is
/// excluded forever. A restarted peer begins with a full score.
class Score {
 public:
  static constexpr double kLeast = 10, kMost = 1000, kReward = 10, kPenalty = 100;
  /// Points that a score regains by itself.
  static constexpr double kRecoveryPerSecond = 10;

  double at(base::Nanos now) const;
  void succeeded(base::Nanos now) { set(at(now) + kReward, now); }
  /// The peer timed out, could not be reached, or sent unusable data.
  void failed(base::Nanos now) { set(at(now) - kPenalty, now); }
  /// The peer is a new incarnation.
  void restart(base::Nanos now) { set(kMost, now); }

 private:
  void set(double value, base::Nanos now);
  double value_ = kMost;
  base::Nanos when_{0};
};

/// The index of the highest sum of a score and a random whole number from 10 to 1000; among equals, one at random.
/// `scores` must not be empty.
size_t choose(std::span<const double> scores, Rng& rng);

}  // namespace mv::gossip
