#pragma once
// What a member tells of a group that it is in.

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
  uint64_t operations = 0;  ///< that it has begun
  std::string broken;       ///< why the group goes on no more; empty while it does
};

}  // namespace mv::collective
