#pragma once
// Carries groups' messages to their members, and knows which were not taken yet.

#include <functional>
#include <unordered_map>

#include "engine/rpc/client.hpp"
#include "wire/frame.hpp"

namespace mv::collective {

/// Every message is a change of rpc's: it comes once, in order, however the connection breaks. They count against no window of rpc's, for
/// a member that is slow to join an operation must not hold up others' changes of tables; operations limit what they have under way.
/// Loop thread only.
class Sender {
 public:
  explicit Sender(rpc::Client& client) : client_(client) {}

  wire::FrameBuilder& builder() { return builder_; }
  /// `taken` hears that the receiver has used the message, or never will.
  void send(base::Peer to, base::Frame frame, std::function<void()> taken = {});
  /// Whether `to` keeps up with what it is sent.
  bool keeps_up(base::Peer to) const;
  /// Runs once nothing is under way any more, maybe at once.
  void when_all_taken(std::function<void()> work);

  uint64_t bytes_sent = 0;

 private:
  class Outgoing;
  struct Load {
    size_t messages = 0, bytes = 0;
  };
  void taken(base::Peer to, size_t bytes);

  rpc::Client& client_;
  wire::FrameBuilder builder_;
  std::unordered_map<base::Peer, Load> loads_;
  size_t open_ = 0;
  std::function<void()> when_all_taken_;
};

}  // namespace mv::collective
