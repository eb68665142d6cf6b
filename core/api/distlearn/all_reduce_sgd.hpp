#pragma once
// One mini-batch spread over ranks: gradients are summed, and every rank makes the same step.

#include "api/distlearn/peers.hpp"

namespace mv::distlearn {

/// Ranks may make different numbers of steps: whoever has none left calls synchronize(), and takes part with zeros until all have.
class AllReduceSgd {
 public:
  AllReduceSgd(api::Node& node, api::GroupRef group) : peers_(node, std::move(group)) {}

  enum class Sum { kPlain, kNormalized };
  /// gradients = their sum over all ranks, or that divided by the number of those that contributed to this step.
  base::Status sum(const Arrays& gradients, Sum which, uint64_t* contributors, base::Nanos timeout);
  /// The parameters of the rank with the most steps since the last time, the lowest among equals; without any steps the lowest rank's.
  base::Status synchronize(const Arrays& parameters, base::Nanos timeout);

  Peers& peers() { return peers_; }

 private:
  Peers peers_;
  int64_t steps_ = 0;
};

}  // namespace mv::distlearn
