#pragma once
// A member's report of a group that it is in.

#include <cstdint>
#include <string>
#include <vector>

#include "base/link.hpp"

namespace mv::collective {

struct GroupState {
  uint64_t id = 0;
  std::vector<base::Peer> ranks;
  uint32_t rank = 0;        ///< the member's own
  std::string transport;         ///< "shm" or "messages"
  uint64_t operations = 0;  ///< begun by the member
  std::string broken;       ///< why the group is broken; empty if it is not
  std::string tuning = {};  ///< the algorithms of its operations, and why; empty if there is no choice
};

}  // namespace mv::collective
