#include "engine/gossip/scores.hpp"

#include <algorithm>

namespace mv::gossip {

double Score::at(base::Nanos now) const {
  const double seconds = base::seconds(now - when_);
  return std::clamp(value_ + std::max(seconds, 0.0) * kRecoveryPerSecond, kLeast, kMost);
}

void Score::set(double value, base::Nanos now) {
  value_ = std::clamp(value, kLeast, kMost);
  when_ = now;
}

size_t choose(std::span<const double> scores, Rng& rng) {
  constexpr auto kFaces = static_cast<uint64_t>(Score::kMost - Score::kLeast) + 1;
  size_t best = 0;
  double highest = 0;
  uint64_t equals = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double total = scores[i] + Score::kLeast + static_cast<double>(rng.below(kFaces));
    if (i > 0 && total < highest) continue;
    equals = i > 0 && total == highest ? equals + 1 : 1;
    if (equals > 1 && rng.below(equals) != 0) continue;  // reservoir sampling: each of them stays with the same probability
    best = i;
    highest = total;
  }
  return best;
}

}  // namespace mv::gossip
