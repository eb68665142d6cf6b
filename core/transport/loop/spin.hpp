#pragma once
// Whether it is worth while to look for news before sleeping, and how long.
//
// Waking a processor costs some 50 microseconds, an answer through shared memory one or two. So who waits looks for a while;
// but only where that has hit, and only while nobody else needs the processor.

#include "base/clock.hpp"

namespace mv::transport {

/// Threads that run or want to, on the whole machine; 0 if the kernel does not say.
int runnable_threads();

class Spin {
 public:
  explicit Spin(base::Nanos limit) : limit_(limit) {}

  /// How long to look now; 0: sleep at once.
  base::Nanos budget(base::Nanos now);
  /// What came of it.
  void hit() { failures_ = 0; }
  void failed();

 private:
  bool is_crowded(base::Nanos now);

  base::Nanos limit_;
  int failures_ = 0;  ///< in a row
  int skip_ = 0;      ///< sleeps until the next try
  base::Nanos look_again_{0};
  bool crowded_ = false;
};

}  // namespace mv::transport
