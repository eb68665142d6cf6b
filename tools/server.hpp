#pragma once
// `polyverso server`: a process that holds shards of tables and does nothing else.

#include <cstdint>
#include <string>
#include <vector>

namespace mv::tools {

struct ServerOptions {
  std::string master, bind, secret_file, metrics;  ///< empty: from the environment
  int64_t nodes = 0, rank = -1;           ///< 0 and -1: from the environment
  std::vector<std::string> settings;      ///< further "key=value"
  double grace = 30;                      ///< seconds in which other servers get its tables after SIGTERM
};

/// Joins the cluster and serves until all workers have finished. An exit status.
int run_server(const ServerOptions& options);

}  // namespace mv::tools
