#pragma once
// Admission: the permitted senders of messages. engine/dispatch.hpp lists those of each kind. The hello does not make a
// process a member. It proves only that the process knows the secret, or belongs to the same user.

#include <cstdint>

namespace mv::cluster {

enum class Sender : uint8_t {
  kAnyone,       ///< any process that passed the hello: messages for joining, and status requests
  kMember,       ///< members of the view that are not lost
  kAsked,        ///< answers: members, and the master while this node joins
  kMaster,       ///< the master only
  kCoordinator,  ///< the process that directs checkpoints: server 0; with replicas any server, because the part of server 0 can move
  kNobody,       ///< messages of gossip, which has no cluster
};

}  // namespace mv::cluster
