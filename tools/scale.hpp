#pragma once
// `polyverso scale`: changes the number of a running cluster's servers.

#include <cstdint>

#include "target.hpp"

namespace mv::tools {

struct ScaleOptions {
  ClusterChoice cluster;
  int64_t servers = 0;
  double timeout = 60;  ///< seconds; 0: only ask the master
};

/// The exit status: 0 once the cluster has the servers, 1 if it has not in time, or can't. Throws UsageError.
int scale(const ScaleOptions& options);

}  // namespace mv::tools
