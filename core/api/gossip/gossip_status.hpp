#pragma once
// Asking all nodes of a gossip configuration how they stand.

#include <string>

#include "base/clock.hpp"
#include "engine/gossip/config.hpp"

namespace mv::api {

/// Node after node, in the order of the configuration; who does not answer within `patience` is shown with the reason. JSON: a list of objects,
/// with name, address and error for these. MV_EINTR after a signal.
base::Result<std::string> gossip_status(const gossip::Config& config, bool json, base::Nanos patience);

}  // namespace mv::api
