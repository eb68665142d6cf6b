#include "intranode/algorithms.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

namespace mv::intranode {

namespace {

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr std::array<AlgorithmTraits, kAlgorithms> kTraits = {{{"inline", kBlockBytes},
                                                               {"shares", kBlockBytes},
                                                               {"shares-16k", 16 * kKiB},
                                                               {"whole-staged", kBlockBytes, true},
                                                               {"whole-staged-16k", 16 * kKiB, true},
                                                               {"whole-staged-256k", 256 * kKiB, true},
                                                               {"whole-direct", kBlockBytes, true, true}}};
static_assert(kRingBytes / (256 * kKiB) > kSlots);

/// These guesses were the best ones on two machines (AMD EPYC, Intel Xeon). They are used until a trial has ended, and
/// with tuning=fixed.
constexpr size_t kGuessInline = 8 * kKiB, kGuessDirect = 4 * kMiB;

}  // namespace

const AlgorithmTraits& traits(Algorithm algorithm) { return kTraits[static_cast<size_t>(algorithm)]; }

std::optional<Algorithm> algorithm_named(std::string_view name) {
  for (size_t algorithm = 0; algorithm < kAlgorithms; ++algorithm)
    if (kTraits[algorithm].name == name) return static_cast<Algorithm>(algorithm);
  return std::nullopt;
}

std::string algorithm_names() {
  std::string names;
  for (const AlgorithmTraits& algorithm : kTraits) names += std::string(names.empty() ? "" : ", ") + algorithm.name;
  return names;
}

SizeClass::SizeClass(size_t bytes, bool tensors, bool in_place) {
  const size_t size = std::clamp<size_t>(static_cast<size_t>(std::bit_width(bytes - 1)), kSmallest, kSmallest + kSizes - 1) - kSmallest;
  index_ = size * kKinds + (is_small(bytes) ? 0 : (tensors ? 1U : 0U) | (in_place ? 2U : 0U));
}

std::string SizeClass::name() const {
  const size_t limit = most();
  const bool last = index_ / kKinds == kSizes - 1;
  std::string text = limit >= kMiB ? fmt::format("{}M", limit / kMiB) : fmt::format("{}K", limit / kKiB);
  if (last) text += "+";
  if (!is_small(limit)) text += tensors() ? " tensors" : " private";
  if (in_place()) text += " in-place";
  return text;
}

bool fits(Algorithm algorithm, const SizeClass& of, size_t ranks) {
  if (algorithm == Algorithm::kInline) return SizeClass::is_small(of.most());
  return !traits(algorithm).whole || ranks == 2;
}

void Candidates::add(Algorithm algorithm) {
  if (!find(algorithm)) algorithms_[count_++] = algorithm;
}

std::optional<size_t> Candidates::find(Algorithm algorithm) const {
  const auto found = std::ranges::find(all(), algorithm);
  return found == all().end() ? std::nullopt : std::optional(static_cast<size_t>(found - all().begin()));
}

Candidates::Candidates(const SizeClass& of, size_t ranks) {
  const size_t most = of.most();
  const bool small = SizeClass::is_small(most);
  if (small && most <= kGuessInline) add(Algorithm::kInline);
  if (ranks == 2) {
    const bool reads = small || (of.tensors() && !of.in_place());
    if (reads && most <= kGuessDirect) add(Algorithm::kWholeDirect);
    add(small ? Algorithm::kWholeDirect : Algorithm::kWholeStaged);
    if (reads) add(Algorithm::kWholeDirect);
  }
  add(Algorithm::kShares);
  if (small) {
    add(Algorithm::kInline);
    return;
  }
  // Smaller blocks are handed on earlier, larger ones less often. Only a measurement shows which is better.
  if (most > ranks * 16 * kKiB) add(Algorithm::kShares16K);
  if (ranks == 2) add(Algorithm::kWholeStaged16K);
  if (ranks == 2 && most >= kMiB) add(Algorithm::kWholeStaged256K);
}

}  // namespace mv::intranode
