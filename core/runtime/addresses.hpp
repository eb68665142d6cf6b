#pragma once
// The address that a node listens on, and the one that it advertises to others. They differ if it listens on all
// interfaces, or behind address translation, or if its own name resolves to loopback locally, as Debian's
// installer sets it up (127.0.1.1).

#include <string>

#include "base/result.hpp"

namespace mv::runtime {

/// The address to listen on for `wished`: "host", "host:port", "interface", "interface:port"; without a port, any free
/// one. A name that resolves to loopback here, but is not spelled as loopback, means all interfaces, because other
/// machines resolve it to something else.
base::Result<std::string> listening_address(const std::string& wished);

/// The address to advertise. `advertise`: the user's setting, or ""; `bound`: where this node listens; `master`:
/// the first node that it talks to. MV_EINVAL if it listens on all interfaces and no address of this machine is
/// found that others could use.
base::Result<std::string> advertised_address(const std::string& advertise, const std::string& bound,
                                             const std::string& master);

}  // namespace mv::runtime
