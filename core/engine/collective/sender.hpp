#pragma once
// Sends all messages of groups.

#include <functional>
#include <utility>

#include "engine/rpc/client.hpp"
#include "wire/frame.hpp"

namespace mv::collective {

/// Sends messages of groups as changes of rpc: exactly once and in order, even if the connection breaks. They do not
/// count against rpc's windows, because a member that is slow to join an operation must not delay changes of tables.
/// Operations limit their own bytes in flight. Loop thread only.
class Sender {
 public:
  /// @param reaches  whether a peer is a member that is not lost. Messages for other peers are dropped, because nobody
  ///                 would report that they are not taken. Empty: all peers are members
  explicit Sender(rpc::Client& client, std::function<bool(base::Peer)> reaches = {}) : client_(client), reaches_(std::move(reaches)) {}

  wire::FrameBuilder& builder() { return builder_; }
  /// Calls `taken` when the receiver has used the message, or will never use it.
  void send(base::Peer to, base::Frame frame, std::function<void()> taken = {});
  /// Runs `work` once no message is in flight, possibly at once.
  void when_all_taken(std::function<void()> work);

  uint64_t bytes_sent = 0;

 private:
  class Outgoing;
  void taken();

  rpc::Client& client_;
  const std::function<bool(base::Peer)> reaches_;
  wire::FrameBuilder builder_;
  size_t open_ = 0;
  std::function<void()> when_all_taken_;
};

}  // namespace mv::collective
