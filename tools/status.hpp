#pragma once
// `polyverso status`: how a running cluster stands.

#include <cstdint>
#include <optional>

#include "target.hpp"

namespace mv::tools {

struct StatusOptions {
  ClusterChoice cluster;
  std::string gossip;  ///< a file with gossiping nodes, instead of a cluster
  bool json = false;
  std::optional<int64_t> log_of;  ///< a rank: show the last lines of its log instead
  std::optional<double> watch;  ///< seconds from one look to the next
};

/// 0 if a cluster has answered, else 1.
int show_status(const StatusOptions& options);

}  // namespace mv::tools
