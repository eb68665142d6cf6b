#pragma once
// Where a node listens, and what it tells others about it: two things where it listens on all interfaces, or behind a
// translated address, or where its own name means loopback to itself, as Debian's installer has it (127.0.1.1).

#include <string>

#include "base/result.hpp"

namespace mv::runtime {

/// What to listen on for `wished`: "host", "host:port", "interface", "interface:port"; without a port any free one. A name that
/// resolves to loopback here, but is not spelled so, means all interfaces: others resolve it to something else.
base::Result<std::string> listening_address(const std::string& wished);

/// What others are told. `advertise`: what the user said, or ""; `bound`: where this node listens; `master`: with whom it talks first.
/// MV_EINVAL if it listens on all interfaces, and no address of this machine can be found that others could use.
base::Result<std::string> advertised_address(const std::string& advertise, const std::string& bound,
                                             const std::string& master);

}  // namespace mv::runtime
