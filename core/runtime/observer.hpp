#pragma once
// observe(): asks a cluster for its status without being a member.

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.hpp"
#include "base/result.hpp"
#include "transport/tls/tls.hpp"

namespace mv::runtime {

struct Observation {
  std::string address;  ///< of any member; usually the master's, which is known
  std::string secret;
  bool json = false;
  base::Nanos patience{0};
  transport::TlsSettings tls;
  bool live = false;                 ///< see MV_LIVE
  std::optional<uint32_t> log_of{};  ///< only the last lines of the log of this rank
  uint32_t servers = 0;              ///< not 0: a request for this number of servers instead of a question
};

/// The status of the cluster, or a member's log. MV_EINVAL if it can't have as many servers. MV_EUNREACHABLE, MV_EAUTH, MV_ETIMEOUT, MV_EPEERLOST; MV_EINTR after a signal.
base::Result<std::string> observe(const Observation& observation);

}  // namespace mv::runtime
