#pragma once
// observe(): asks a cluster for its status without being a member.

#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"

namespace mv::runtime {

struct Observation {
  std::string address;  ///< of any member; usually the master's, which is known
  std::string secret;
  bool json = false;
  base::Nanos patience{0};
};

/// The status of the cluster. MV_EUNREACHABLE, MV_EAUTH, MV_ETIMEOUT, MV_EPEERLOST; MV_EINTR after a signal.
base::Result<std::string> observe(const Observation& observation);

}  // namespace mv::runtime
