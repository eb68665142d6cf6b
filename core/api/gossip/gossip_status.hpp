#pragma once
// gossip_status(): asks all nodes of a gossip configuration for their state. What it and the nodes read of a configuration.

#include <string>

#include "base/clock.hpp"
#include "engine/gossip/config.hpp"
#include "transport/tls/tls.hpp"

namespace mv::api {

transport::TlsSettings tls_of(const gossip::Config& config);

/// Asks one node after another, in the order of the configuration. A node that does not answer within
/// `patience` is shown with the reason. JSON: a list of objects; those of such nodes have name, address and
/// error. MV_EINTR after a signal.
base::Result<std::string> gossip_status(const gossip::Config& config, bool json, base::Nanos patience);

}  // namespace mv::api
