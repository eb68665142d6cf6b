#include "engine/gossip/factor.hpp"

#include <algorithm>
#include <cmath>

namespace mv::gossip {

namespace {

/// part / (part + other); 0/0 is one half. Losses may be negative, so the caller clamps the result to 0 .. 1.
double share(double part, double other) {
  const double sum = part + other;
  if (std::isinf(sum)) return part / 2 / (part / 2 + other / 2);
  if (sum != 0) return part / sum;
  return part == 0 ? 0.5 : part > 0 ? 1 : 0;
}

double unclamped(const Interpolation& how, const Progress& own, const Progress& peer) {
  switch (how.method) {
    case Method::kClock:
      return share(peer.clock, own.clock);
    case Method::kLoss:
      return how.loss_weighting == LossWeighting::kOwn ? share(own.loss, peer.loss) : share(peer.loss, own.loss);
    case Method::kConstant:
      break;
  }
  return how.constant;
}

}  // namespace

base::Result<double> factor(const Interpolation& how, const Progress& own, const Progress& peer) {
  if (!std::isfinite(own.loss)) return base::error(MV_ENONFINITE, "the loss is {}, not a finite number", own.loss);
  if (!std::isfinite(peer.loss) || !std::isfinite(peer.clock) || !std::isfinite(own.clock))
    return base::error(MV_ENONFINITE, "the peer's loss is {}, its clock {}: expected finite numbers", peer.loss, peer.clock);
  const double threshold = how.divergence_threshold;
  const double damping = threshold != 0 && own.loss < threshold ? own.loss / threshold : 1;
  return std::clamp(std::clamp(unclamped(how, own, peer), 0.0, 1.0) * damping, 0.0, 1.0);
}

base::Result<double> exchanged_factor(const Interpolation& how, const Progress& own, const Progress& peer) {
  const auto here = factor(how, own, peer);
  if (!here.ok() || how.method != Method::kConstant) return here;
  const auto there = factor(how, peer, own);
  return there.ok() ? std::min(here.value(), there.value()) : there;
}

}  // namespace mv::gossip
