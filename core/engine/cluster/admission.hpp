#pragma once
// The permitted senders of messages; engine/dispatch.hpp has those of each kind. The hello does not make a process a member: it proves only that the process
// knows the secret, or belongs to the same user.

#include <cstdint>

namespace mv::cluster {

enum class Sender : uint8_t {
  kAnyone,       ///< any process that passed the hello: messages for joining, and status requests
  kMember,       ///< members of the view that are not lost
  kAsked,        ///< answers: members, and the master while this node joins
  kMaster,       ///< the master only
  kCoordinator,  ///< who directs checkpoints: server 0; with replicas any server, as the part of server 0 moves
  kNobody,       ///< messages of gossip, which has no cluster
};

}  // namespace mv::cluster
