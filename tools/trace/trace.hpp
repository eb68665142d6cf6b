#pragma once
// `polyverso trace`: what the processes of a cluster did last, side by side.

#include <string>
#include <vector>

#include "target.hpp"

namespace mv::tools {

struct TraceOptions {
  ClusterChoice cluster;
  std::vector<std::string> http;  ///< where members serve their metrics; empty: the cluster is asked
  std::string output;             ///< a file; empty: standard output
  double seconds = 0;             ///< only so many of the last; 0: all that there is
  bool explain = false;           ///< prints where the workers' time goes; writes a file only if `output` names one
};

/// Asks all, and writes one trace. An exit status.
int show_trace(const TraceOptions& options);

}  // namespace mv::tools
