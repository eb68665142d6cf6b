#include "intranode/distance.hpp"

#include <algorithm>

namespace mv::intranode {

bool Distance::past_caches() {
  timed_ = by_caches_ == 0 || past_caches_ == 0 || --until_try_ % kTimeEvery == 0;
  if (by_caches_ == 0 || past_caches_ == 0) return past_ = by_caches_ != 0;
  const bool tries = until_try_ == 0;
  if (tries) until_try_ = kTryEvery;
  return past_ = (by_caches_ > kWorth * past_caches_) != tries;
}

void Distance::took(size_t bytes, base::Nanos span) {
  double& known = past_ ? past_caches_ : by_caches_;
  const double now = static_cast<double>(std::max<int64_t>(span.count(), 1)) / static_cast<double>(bytes);
  // The rank may have been preempted meanwhile, so an outlier counts as 4 times the average at most. Several in a row
  // still move the average.
  known = known == 0 ? now : known + (std::min(now, 4 * known) - known) / 2;
}

}  // namespace mv::intranode
