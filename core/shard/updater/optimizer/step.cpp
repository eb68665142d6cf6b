// The numbers of a step: rate, decay and so on, from an optimizer's parameters and the updates made so far.

#include <algorithm>
#include <array>

#include "shard/updater/optimizer/traits.hpp"

namespace mv::shard::optimizer {

Step make_step(const Kind& kind, std::span<const double> parameters, const Turn& turn, std::span<const double> shared) {
  const auto [own, common, steps] = view(kind, parameters);
  const auto begun = static_cast<uint64_t>(common[kBeginNumUpdate]);
  Step step;
  const uint64_t updates = begun + (kind.optimizer->rate_comes_first ? turn.before : turn.latest);
  step.numbers[kRate] = scheduled_rate({own, common, steps}, updates) * common[kLrMult] * turn.rate_factor;
  step.numbers[kDecay] = common[kWd] * common[kWdMult] * turn.decay_factor;
  step.numbers[kRescale] = common[kRescaleGrad];
  step.numbers[kClip] = common[kClipGradient];
  std::ranges::copy(own.subspan(1), step.numbers.begin() + kOwn);
  if (kind.optimizer->correct != nullptr) kind.optimizer->correct(step.numbers.data(), begun + turn.count, shared);
  step.stream = turn.stream;
  return step;
}

void advance(const Kind& kind, std::span<const double> parameters, const Turn& turn, std::span<double> shared) {
  if (kind.optimizer->advance == nullptr) return;
  const auto [own, common, steps] = view(kind, parameters);
  std::array<double, Step::kNumbers> numbers{};
  std::ranges::copy(own.subspan(1), numbers.begin() + kOwn);
  kind.optimizer->advance(numbers.data(), static_cast<uint64_t>(common[kBeginNumUpdate]) + turn.count, shared);
}

}  // namespace mv::shard::optimizer
