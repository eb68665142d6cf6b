#pragma once
// Executes the schedules of all ranks with symbols instead of numbers: an element's value is the expression that computed it. Equal
// expressions mean equal bits, whatever the numbers are.

#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "engine/collective/schedule.hpp"

/// Expressions without duplicates: 0 .. ranks - 1 are the ranks' own values, others f(left, right).
class Expressions {
 public:
  explicit Expressions(int32_t ranks) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      std::vector<int> leaves(static_cast<size_t>(ranks));
      leaves[static_cast<size_t>(rank)] = 1;
      leaves_.push_back(std::move(leaves));
    }
  }

  int combine(int left, int right) {
    const auto [found, added] = known_.try_emplace({left, right}, static_cast<int>(leaves_.size()));
    if (added) {
      std::vector<int> both = leaves_[static_cast<size_t>(left)];
      for (size_t i = 0; i < both.size(); ++i) both[i] += leaves_[static_cast<size_t>(right)][i];
      leaves_.push_back(std::move(both));
    }
    return found->second;
  }
  /// The number of occurrences of each rank's value in an expression.
  const std::vector<int>& leaves(int expression) const { return leaves_[static_cast<size_t>(expression)]; }

 private:
  std::map<std::pair<int, int>, int> known_;
  std::vector<std::vector<int>> leaves_;
};

/// All ranks together. A message is delivered only when its receiver is ready for it, so a schedule that completes here needs no buffers.
class SymbolicRun {
 public:
  SymbolicRun(std::vector<mv::collective::Schedule> schedules, uint64_t count)
      : expressions(static_cast<int32_t>(schedules.size())), schedules_(std::move(schedules)) {
    for (size_t rank = 0; rank < schedules_.size(); ++rank) values.emplace_back(count, static_cast<int>(rank));
    ranks_.resize(schedules_.size());
  }

  /// Whether every rank finished its schedule, with messages of the expected lengths.
  bool run() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) begin(rank);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) moved = take(rank) || moved;
    }
    return fits && std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.through; });
  }

  Expressions expressions;
  std::vector<std::vector<int>> values;  ///< of each rank, element by element
  std::map<int32_t, uint64_t> sent;      ///< elements, by rank
  bool fits = true;

 private:
  using Step = mv::collective::Step;
  struct Rank {
    size_t step = 0;
    bool sent = false, received = false, through = false;
    std::vector<int> message;  ///< the message of this step, as it was when the step began
  };

  const Step& step_of(size_t rank) const { return schedules_[rank][ranks_[rank].step]; }

  void begin(size_t rank) {
    Rank& at = ranks_[rank];
    at.through = at.step == schedules_[rank].size();
    if (at.through) return;
    const Step& step = step_of(rank);
    at.sent = step.to == Step::kNone;
    at.received = step.from == Step::kNone;
    if (!at.sent) {
      const auto first = values[rank].begin() + static_cast<std::ptrdiff_t>(step.send.first);
      at.message.assign(first, first + static_cast<std::ptrdiff_t>(step.send.count));
    }
  }

  /// The message for which a rank waits, if its sender has reached it.
  bool take(size_t rank) {
    Rank& at = ranks_[rank];
    if (at.through || at.received) return false;
    const Step& step = step_of(rank);
    Rank& sender = ranks_[static_cast<size_t>(step.from)];
    if (sender.through || sender.sent || step_of(static_cast<size_t>(step.from)).to != static_cast<int32_t>(rank)) return false;
    fits = fits && sender.message.size() == step.receive.count && step_of(static_cast<size_t>(step.from)).send == step.receive;
    if (!fits) return false;
    for (size_t i = 0; i < sender.message.size(); ++i) {
      int& value = values[rank][step.receive.first + i];
      const int other = sender.message[i];
      if (step.arrival == Step::Arrival::kCopy) value = other;
      else value = step.from < static_cast<int32_t>(rank) ? expressions.combine(other, value) : expressions.combine(value, other);
    }
    sent[step.from] += sender.message.size();
    at.received = sender.sent = true;
    go_on(static_cast<size_t>(step.from));
    go_on(rank);
    return true;
  }

  void go_on(size_t rank) {
    Rank& at = ranks_[rank];
    if (at.through || !at.sent || !at.received) return;
    ++at.step;
    begin(rank);
  }

  std::vector<mv::collective::Schedule> schedules_;
  std::vector<Rank> ranks_;
};
