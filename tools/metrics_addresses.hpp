#pragma once
// Where the processes of a cluster serve their metrics and traces.

#include <string>
#include <vector>

#include "target.hpp"

namespace mv::tools {

/// `http` if it names any, otherwise what the cluster's members say; standard error tells of members that serve none.
/// `command` begins messages. Throws UsageError, or std::runtime_error if the cluster doesn't answer or no member serves them.
std::vector<std::string> metrics_addresses(const std::string& command, const ClusterChoice& cluster, const std::vector<std::string>& http);

}  // namespace mv::tools
