#pragma once
// Whom a process outside of the cluster asks, from the settings that a caller gives.

#include "runtime/observer.hpp"

namespace mv::capi {

/// @param settings  as for mv_cluster_status_text()
base::Result<runtime::Observation> observation(const char* function, const char* settings);

}  // namespace mv::capi
