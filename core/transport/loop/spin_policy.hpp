#pragma once
// The policy for spinning: whether a waiter polls before it sleeps, and for how long.
//
// Waking a processor takes about 50 microseconds, an answer through shared memory one or two. A waiter therefore spins
// for a while, but less often when spinning rarely succeeds. While other threads need the processor it yields between two
// polls: the process that it waits for may be one of them, and then goes on without a wake-up.

#include "base/clock.hpp"

namespace mv::transport {

/// The number of runnable threads on the whole machine; 0 if the kernel does not report it.
int runnable_threads();

class SpinPolicy {
 public:
  explicit SpinPolicy(base::Nanos limit) : limit_(limit) {}

  /// How long to spin now; 0: sleep at once.
  base::Nanos budget(base::Nanos now);
  /// Whether runnable threads outnumbered processors at the last budget().
  bool is_crowded() const { return crowded_; }
  /// The result of a spin.
  void hit() { failures_ = 0; }
  void failed();

 private:
  void look_at_load(base::Nanos now);

  base::Nanos limit_;
  int failures_ = 0;  ///< in a row
  int skip_ = 0;      ///< sleeps left until the next spin
  base::Nanos look_again_{0};
  bool crowded_ = false;
};

}  // namespace mv::transport
