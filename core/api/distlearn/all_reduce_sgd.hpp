#pragma once
// AllReduceSgd: synchronous SGD. A mini-batch is spread over ranks; they sum their gradients and make the same step.

#include "api/distlearn/peers.hpp"

namespace mv::distlearn {

/// Ranks may make different numbers of steps: a rank that has none left calls synchronize(), and takes part with zeros
/// until all ranks have called it.
class AllReduceSgd {
 public:
  AllReduceSgd(api::Node& node, api::GroupRef group) : peers_(node, std::move(group)) {}

  enum class Sum { kPlain, kNormalized };
  /// gradients = their sum over all ranks, or this sum divided by the number of contributors to this step.
  base::Status sum(const Arrays& gradients, Sum which, uint64_t* contributors, base::Nanos timeout);
  /// Gives all ranks the parameters of the rank with the most steps since the last call, the lowest among equals;
  /// without any steps, those of the lowest rank.
  base::Status synchronize(const Arrays& parameters, base::Nanos timeout);

  Peers& peers() { return peers_; }

 private:
  Peers peers_;
  int64_t steps_ = 0;
};

}  // namespace mv::distlearn
