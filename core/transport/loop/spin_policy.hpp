#pragma once
// The policy for spinning: whether a waiter polls before it sleeps, and for how long.
//
// Waking a processor takes about 50 microseconds, an answer through shared memory one or two. A waiter therefore spins
// for a while, but less often when spinning rarely succeeds. After the first microseconds it yields between two polls: the
// process that it waits for may need this processor, and then continues without a wake-up.

#include <chrono>

#include "base/clock.hpp"

namespace mv::transport {

class SpinPolicy {
 public:
  /// How long a spin polls before it begins to yield, which makes a poll some 0.3 microseconds longer. A guess that was good
  /// on one machine: most spins that succeed there are about as long.
  static constexpr base::Nanos kWithoutYielding = std::chrono::microseconds(2);

  explicit SpinPolicy(base::Nanos limit) : limit_(limit) {}

  /// How long to spin now; 0: sleep at once.
  base::Nanos budget();
  /// The result of a spin.
  void hit() { failures_ = 0; }
  void failed(base::Nanos spun);

 private:
  base::Nanos limit_;
  int failures_ = 0;  ///< in a row
  int skip_ = 0;      ///< sleeps left until the next spin
};

}  // namespace mv::transport
