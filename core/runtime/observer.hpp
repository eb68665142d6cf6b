#pragma once
// Asking a cluster of which this process is no member.

#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace mv::runtime {

struct Observation {
  std::string address;  ///< of any member; the master's is the one that is known
  std::string secret;
  bool json = false;
  base::Nanos patience{0};
};

/// How that cluster stands. MV_EUNREACHABLE, MV_EAUTH, MV_ETIMEOUT, MV_EPEERLOST; MV_EINTR after a signal.
base::Result<std::string> observe(const Observation& observation);

}  // namespace mv::runtime
