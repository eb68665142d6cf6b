#include "engine/collective/trial.hpp"

#include <algorithm>
#include <utility>

namespace mv::collective {

namespace {

/// The lower median of the first `count` times, at least one.
uint32_t median(std::array<uint32_t, Trial::kTimes> times, size_t count) {
  const auto middle = times.begin() + static_cast<ptrdiff_t>((count - 1) / 2);
  std::nth_element(times.begin(), middle, times.begin() + static_cast<ptrdiff_t>(count));
  return *middle;
}

}  // namespace

Trial::Trial(size_t alternatives) : count_(std::clamp<size_t>(alternatives, 1, kMostAlternatives)) {
  if (count_ == 1) chosen_ = 0;
}

size_t Trial::next() const {
  if (chosen_) return *chosen_;
  size_t best = count_;
  for (size_t each = 0; each < count_; ++each)
    if (!alternatives_[each].dropped && (best == count_ || alternatives_[each].begun < alternatives_[best].begun)) best = each;
  return best;
}

uint32_t Trial::score(size_t alternative) const {
  const Tried& tried = alternatives_[alternative];
  return tried.count == 0 ? kLongest : median(tried.times, tried.count);
}

/// Whether even the fastest time of this alternative is more than twice another one's median.
bool Trial::is_hopeless(const Tried& tried) const {
  if (tried.count < kEnoughToDrop) return false;
  const uint64_t fastest = *std::min_element(tried.times.begin(), tried.times.begin() + static_cast<ptrdiff_t>(tried.count));
  return std::any_of(alternatives_.begin(), alternatives_.begin() + static_cast<ptrdiff_t>(count_), [&](const Tried& other) {
    return !other.dropped && other.count >= kEnoughToDrop && fastest > 2 * uint64_t{median(other.times, other.count)};
  });
}

void Trial::took(size_t alternative, uint32_t longest) {
  Tried& tried = alternatives_[alternative];
  if (chosen_ || !std::exchange(tried.warm, true)) return;
  if (tried.count < kTimes) tried.times[tried.count++] = longest;
  bool all = true;
  for (size_t each = 0; each < count_; ++each) {
    alternatives_[each].dropped = alternatives_[each].dropped || is_hopeless(alternatives_[each]);
    all = all && (alternatives_[each].dropped || alternatives_[each].count == kTimes);
  }
  if (!all) return;
  size_t best = count_;
  for (size_t each = 0; each < count_; ++each)
    if (!alternatives_[each].dropped && (best == count_ || score(each) < score(best))) best = each;
  constexpr uint64_t kWorth = 32;  // a gain of less than 1/32 is noise
  const bool default_is_as_good = !alternatives_[0].dropped && uint64_t{score(0)} * (kWorth - 1) <= uint64_t{score(best)} * kWorth;
  chosen_ = default_is_as_good ? 0 : best;
}

}  // namespace mv::collective
