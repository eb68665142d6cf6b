#pragma once
// Executes the schedules of all ranks on a simulated network. A message takes alpha to arrive. Each of its bytes occupies the sender's
// output and the receiver's input for beta, and each reduced byte occupies the receiver for gamma more.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>
#include <vector>

#include "engine/collective/cost.hpp"

class TimedRun {
 public:
  using TransportOf = std::function<mv::collective::TransportCost(int32_t from, int32_t to)>;

  /// Schedules whose elements are bytes.
  TimedRun(std::vector<mv::collective::Schedule> schedules, TransportOf transport, double gamma)
      : schedules_(std::move(schedules)), transport_(std::move(transport)), gamma_(gamma), ranks_(schedules_.size()) {}

  /// Seconds until the last rank finishes; negative on a deadlock.
  double run() {
    std::deque<size_t> ready;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) ready.push_back(rank);
    while (!ready.empty()) {
      const size_t rank = ready.front();
      ready.pop_front();
      go_on(rank, ready);
    }
    double last = 0;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].step < schedules_[rank].size()) return -1;
      last = std::max(last, ranks_[rank].now);
    }
    return last;
  }

 private:
  using Step = mv::collective::Step;
  struct Rank {
    size_t step = 0;
    bool sent = false;
    double now = 0, out_free = 0, in_free = 0;
    std::unordered_map<int32_t, std::deque<double>> arrived;  ///< by sender: when its messages begin to arrive
  };

  void go_on(size_t rank, std::deque<size_t>& ready) {
    Rank& at = ranks_[rank];
    for (; at.step < schedules_[rank].size(); ++at.step, at.sent = false) {
      const Step& step = schedules_[rank][at.step];
      if (step.to != Step::kNone && !at.sent) {
        send(static_cast<int32_t>(rank), step);
        ready.push_back(static_cast<size_t>(step.to));
      }
      double end = step.to != Step::kNone ? at.out_free : at.now;
      if (step.from != Step::kNone) {
        auto& arrived = at.arrived[step.from];
        if (arrived.empty()) return;
        const mv::collective::TransportCost transport = transport_(step.from, static_cast<int32_t>(rank));
        const double per_byte = transport.beta + (step.arrival == Step::Arrival::kReduce ? gamma_ : 0);
        at.in_free = std::max(arrived.front(), at.in_free) + per_byte * static_cast<double>(step.receive.count);
        arrived.pop_front();
        end = std::max(end, at.in_free);
      }
      at.now = std::max(at.now, end);
    }
  }

  void send(int32_t rank, const Step& step) {
    Rank& at = ranks_[static_cast<size_t>(rank)];
    const mv::collective::TransportCost transport = transport_(rank, step.to);
    const double start = std::max(at.now, at.out_free);
    at.out_free = start + transport.beta * static_cast<double>(step.send.count);
    at.sent = true;
    ranks_[static_cast<size_t>(step.to)].arrived[rank].push_back(start + transport.alpha);
  }

  std::vector<mv::collective::Schedule> schedules_;
  TransportOf transport_;
  double gamma_;
  std::vector<Rank> ranks_;
};

/// Seconds of one algorithm among ranks that all use the same transport.
inline double timed_allreduce(mv::collective::Algorithm algorithm, uint64_t bytes, int32_t ranks,
                              mv::collective::TransportCost transport, double gamma,
                              const mv::collective::Tree& tree = {}) {
  std::vector<mv::collective::Schedule> schedules;
  for (int32_t rank = 0; rank < ranks; ++rank) schedules.push_back(allreduce(algorithm, rank, ranks, bytes, tree));
  return TimedRun(std::move(schedules), [&](int32_t, int32_t) { return transport; }, gamma).run();
}
