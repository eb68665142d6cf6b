#pragma once
// `polyverso dashboard`: the state of a running cluster, or of gossiping nodes, as a page for a browser.

#include <string>

#include "target.hpp"

namespace mv::tools {

struct DashboardOptions {
  ClusterChoice cluster;
  std::string gossip;              ///< a file with gossiping nodes, instead of a cluster
  std::string from;                ///< for tests: a file with the JSON of `polyverso status --json`, read anew for each poll
  std::string bind = "127.0.0.1";  ///< where to listen
  int port = 0;                    ///< 0: any free port
};

/// Serves the page until the process is ended. Returns 1 if it can't listen. Throws UsageError.
int serve_dashboard(const DashboardOptions& options);

}  // namespace mv::tools
