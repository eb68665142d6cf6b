#pragma once
// Who may send what. Passing the hello makes nobody a member: it says that a process knows the secret, or is the same user's.

#include <cstdint>

#include "wire/frame.hpp"

namespace mv::cluster {

enum class Sender : uint8_t {
  kAnyone,       ///< who has passed the hello: what joining takes, and questions how the cluster stands
  kMember,       ///< members of the view that are not lost
  kAsked,        ///< an answer: members, and the master while it is asked to let this node in
  kMaster,       ///< the master alone
  kFirstServer,  ///< server 0 alone, which directs checkpoints
  kNobody,       ///< gossip's, which knows no cluster
};

/// Of every message that there is.
Sender sender_of(wire::Body body);

}  // namespace mv::cluster
