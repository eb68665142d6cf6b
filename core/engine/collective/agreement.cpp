#include "engine/collective/agreement.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace mv::collective {

void Agreement::begin(Wish wish, Done done) {
  done_ = std::move(done);
  wish_ = std::move(wish);
  proceed();
}

void Agreement::change(Wish wish) {
  wish_ = std::move(wish);
  proceed();
}

void Agreement::give_up(const base::Status& why) {
  if (done_) std::exchange(done_, nullptr)(why);
}

void Agreement::gone(uint32_t rank) {
  if (rank < size_ && gone_.insert(rank).second) proceed();
}

void Agreement::heard(uint32_t from, const Word& word) {
  if (decided_) {
    if (!word.decides && word.decided.ranks.empty()) tell_(from, report(false));
    return;
  }
  if (gone_.contains(from)) return;
  if (const Ranks ranks = known(word.decided.ranks); !ranks.empty()) return decide({ranks, word.decided.joined});
  const Ranks gone = known(word.gone);
  gone_.insert(gone.begin(), gone.end());
  reported_[from] = word.wish;
  if (word.asks) told_ = UINT32_MAX;  // it may not have known the group when this rank's report came
  proceed();
}

void Agreement::proceed() {
  if (!done_ || decided_) return;
  const uint32_t lead = coordinator();
  if (gone_.contains(rank_)) return;  // the others continue without this one, and send it the decision
  if (lead != rank_) {
    if (told_ == lead && told_gone_ == gone_.size() && told_wish_ == wish_) return;
    told_ = lead;
    told_gone_ = gone_.size();
    told_wish_ = wish_;
    return tell_(lead, report(false));
  }
  const Ranks others = survivors();
  for (const uint32_t rank : others)
    if (rank != rank_ && asked_.insert(rank).second) tell_(rank, report(true));
  const auto has_reported = [&](uint32_t rank) { return rank == rank_ || reported_.contains(rank); };
  if (!std::all_of(others.begin(), others.end(), has_reported)) return;
  if (const auto joined = joining(others)) decide({others, *joined});
}

/// The newcomers that all of these ranks know. Nothing if there are not enough of them yet.
std::optional<Agreement::Newcomers> Agreement::joining(const Ranks& ranks) const {
  Newcomers joined = wish_.newcomers;
  bool all_grow = wish_.grows;
  uint32_t size = wish_.size;
  for (const uint32_t rank : ranks) {
    if (rank == rank_) continue;
    const Wish& theirs = reported_.at(rank);
    all_grow = all_grow && theirs.grows;
    size = std::max(size, theirs.size);
    Newcomers both;
    std::set_intersection(joined.begin(), joined.end(), theirs.newcomers.begin(), theirs.newcomers.end(), std::back_inserter(both));
    joined = std::move(both);
  }
  if (!all_grow) return Newcomers();
  if (ranks.size() + joined.size() < size) return std::nullopt;
  return joined;
}

/// Adopts a decision and passes it on, because the rank that it came from may be gone: the coordinator sends it to all,
/// other ranks send it to the ranks that it excludes.
void Agreement::decide(const Decision& decision) {
  decided_ = decision;
  const Ranks& ranks = decided_->ranks;
  Word word;
  word.decides = true;
  word.decided = decision;
  for (uint32_t rank = 0; rank < size_; ++rank)
    if (rank != rank_ && (coordinator() == rank_ || !std::binary_search(ranks.begin(), ranks.end(), rank))) tell_(rank, word);
  if (!done_) return;
  if (std::binary_search(ranks.begin(), ranks.end(), rank_)) return std::exchange(done_, nullptr)(*decided_);
  give_up(base::Status(MV_EPEERLOST, "the others consider this rank lost and continue without it"));
}

Agreement::Word Agreement::report(bool asks) const { return {false, asks, {gone_.begin(), gone_.end()}, wish_, decided_.value_or(Decision())}; }

/// The entries of a peer's list that are ranks of this group, in order.
Agreement::Ranks Agreement::known(Ranks told) const {
  std::erase_if(told, [&](uint32_t rank) { return rank >= size_; });
  std::sort(told.begin(), told.end());
  told.erase(std::unique(told.begin(), told.end()), told.end());
  return told;
}

Agreement::Ranks Agreement::survivors() const {
  Ranks ranks;
  for (uint32_t rank = 0; rank < size_; ++rank)
    if (!gone_.contains(rank)) ranks.push_back(rank);
  return ranks;
}

uint32_t Agreement::coordinator() const {
  uint32_t rank = 0;
  while (gone_.contains(rank)) ++rank;
  return rank;
}

Agreement::Ranks Agreement::awaited() const {
  if (coordinator() == size_) return {};  // a peer has sent nonsense: all ranks are gone, this one too
  if (coordinator() != rank_) return {coordinator()};
  Ranks ranks = survivors();
  std::erase_if(ranks, [&](uint32_t rank) { return rank == rank_ || reported_.contains(rank); });
  return ranks;
}

}  // namespace mv::collective
