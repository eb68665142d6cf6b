#pragma once
// The permitted senders of each message. The hello does not make a process a member: it proves only that the process
// knows the secret, or belongs to the same user.

#include <cstdint>

#include "wire/frame.hpp"

namespace mv::cluster {

enum class Sender : uint8_t {
  kAnyone,       ///< any process that passed the hello: messages for joining, and status requests
  kMember,       ///< members of the view that are not lost
  kAsked,        ///< answers: members, and the master while this node joins
  kMaster,       ///< the master only
  kFirstServer,  ///< server 0 only, which directs checkpoints
  kNobody,       ///< messages of gossip, which has no cluster
};

/// Defined for every message type.
Sender sender_of(wire::Body body);

}  // namespace mv::cluster
