#include "intranode/choices.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace mv::intranode {

using collective::Trial;
using Why = Decision::Why;

const char* why_name(Why why) {
  constexpr const char* kNames[] = {"tried", "kept", "named", "fixed", "trying"};
  return kNames[static_cast<size_t>(why)];
}

std::string describe(const std::vector<Decision>& decisions) {
  std::string text;
  for (const Decision& decision : decisions) {
    text += fmt::format("{}{}: {} ({}", text.empty() ? "" : ", ", decision.of.name(), traits(decision.algorithm).name, why_name(decision.why));
    for (size_t i = 0; i < std::min<size_t>(decision.scores.size(), 2); ++i) {  // the best ones
      const auto& [algorithm, nanos] = decision.scores[i];
      text += fmt::format("{}{:.1f} us", i == 0 ? ": " : fmt::format("; {} ", traits(algorithm).name), nanos / 1e3);
    }
    text += ")";
  }
  return text;
}

Choices::Choices(size_t ranks, const Tuning& tuning) : ranks_(ranks), tuning_(tuning) { chosen_.fill(Tuning::kNone); }

std::optional<Decision> Choices::settled(const SizeClass& of) const {
  const Candidates candidates(of, ranks_);
  if (tuning_.named < kAlgorithms && fits(static_cast<Algorithm>(tuning_.named), of, ranks_))
    return Decision{of, static_cast<Algorithm>(tuning_.named), Why::kNamed, {}};
  if (tuning_.mode != Tuning::kTrial || tuning_.named != Tuning::kNone || candidates.size() == 1) return Decision{of, candidates[0], Why::kFixed, {}};
  const uint8_t kept = tuning_.kept[of.index()];
  if (kept < kAlgorithms && candidates.find(static_cast<Algorithm>(kept))) return Decision{of, static_cast<Algorithm>(kept), Why::kKept, {}};
  return std::nullopt;
}

void Choices::settle(Decision decision) {
  const size_t index = decision.of.index();
  chosen_[index] = static_cast<uint8_t>(decision.algorithm);
  std::lock_guard lock(mutex_);
  decisions_.insert_or_assign(index, std::move(decision));
}

Choices::Pick Choices::pick(const SizeClass& of) {
  const uint8_t& chosen = chosen_[of.index()];
  const auto trial = chosen == Tuning::kNone ? trials_.find(of.index()) : trials_.end();
  if (trial != trials_.end()) return {Candidates(of, ranks_)[trial->second.next()], true};
  if (chosen == Tuning::kNone) {
    auto known = settled(of);
    if (!known) return {Candidates(of, ranks_)[0], true};
    settle(std::move(*known));
  }
  return {static_cast<Algorithm>(chosen), false};
}

bool Choices::begin(const SizeClass& of, Algorithm algorithm) {
  if (chosen_[of.index()] != Tuning::kNone) return false;
  const Candidates candidates(of, ranks_);
  const auto [trial, is_new] = trials_.try_emplace(of.index(), candidates.size());
  trial->second.begin(*candidates.find(algorithm));
  timed_ = Timed{of, algorithm, 0};
  if (!is_new) return true;
  std::lock_guard lock(mutex_);
  decisions_.insert_or_assign(of.index(), Decision{of, candidates[0], Why::kTrying, {}});
  return true;
}

void Choices::end(base::Nanos span) {
  if (timed_) timed_->nanos = static_cast<uint32_t>(std::clamp<int64_t>(span.count(), 1, Trial::kLongest));
}

void Choices::heard(uint32_t longest) {
  const Timed timed = *std::exchange(timed_, std::nullopt);
  const auto found = trials_.find(timed.of.index());
  if (found == trials_.end()) return;
  Trial& trial = found->second;
  const Candidates candidates(timed.of, ranks_);
  trial.took(*candidates.find(timed.algorithm), longest);
  if (!trial.chosen()) return;
  Decision decision{timed.of, candidates[*trial.chosen()], Why::kTried, {}};
  for (size_t algorithm = 0; algorithm < candidates.size(); ++algorithm) decision.scores.emplace_back(candidates[algorithm], trial.score(algorithm));
  std::ranges::stable_sort(decision.scores, [&](const auto& a, const auto& b) {
    return a.first == decision.algorithm ? b.first != decision.algorithm : b.first != decision.algorithm && a.second < b.second;
  });
  trials_.erase(found);
  settle(std::move(decision));
  changed_.fetch_add(1, std::memory_order_release);
}

std::vector<Decision> Choices::decisions() const {
  std::lock_guard lock(mutex_);
  std::vector<Decision> list;
  for (const auto& [index, decision] : decisions_) list.push_back(decision);
  return list;
}

}  // namespace mv::intranode
