#pragma once
// Whom to ask: by how well it answered before, and by chance.

#include <cstddef>
#include <span>

#include "base/clock.hpp"
#include "engine/gossip/rng.hpp"

namespace mv::gossip {

/// dpwa's flow control, with two differences: a score recovers by itself, slowly, so that nobody is forgotten for ever; and a peer
/// that has restarted begins anew.
class Score {
 public:
  static constexpr double kLeast = 10, kMost = 1000, kReward = 10, kPenalty = 100;
  /// Points that come back by themselves.
  static constexpr double kRecoveryPerSecond = 10;

  double at(base::Nanos now) const;
  void succeeded(base::Nanos now) { set(at(now) + kReward, now); }
  /// Timed out, could not be reached, or sent what is of no use.
  void failed(base::Nanos now) { set(at(now) - kPenalty, now); }
  /// It is another life of the peer's.
  void restart(base::Nanos now) { set(kMost, now); }

 private:
  void set(double value, base::Nanos now);
  double value_ = kMost;
  base::Nanos when_{0};
};

/// The index of the highest score once each has got a whole random number of 10 .. 1000 on top; among equals, one at random.
/// `scores` is not empty.
size_t choose(std::span<const double> scores, Rng& rng);

}  // namespace mv::gossip
