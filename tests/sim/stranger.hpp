#pragma once
// A process that has completed the hello and belongs to no cluster: it talks to every node, and sends every kind of message.

#include <set>
#include <string>
#include <vector>

#include "network.hpp"

namespace mv::sim {

/// None of its requests may be served. The ledgers detect any change it makes.
class Stranger final : public base::LinkEvents {
 public:
  Stranger(Timeline& timeline, Network& network, Random random, size_t nodes);
  /// Starts it, with several lives one after the other: nodes stop listening to a life that has annoyed them.
  void start();

 private:
  void on_connected(Peer peer, const std::string& address) override;
  void on_dial_failed(const std::string&, const base::Status&) override {}
  void on_lost(Peer peer, const base::Status& why) override;
  void on_message(Peer from, const wire::Message& message, std::span<const std::byte> payload) override;
  base::SinkRef on_header(Peer, const wire::Message&, size_t) override { return base::Sink::nowhere(); }
  void on_payload(Peer from, const wire::Message& message, base::Sink&) override { on_message(from, message, {}); }

  void speak(Peer to);
  base::Frame any_message();
  base::PayloadRef any_payload();

  Timeline& timeline_;
  Network& network_;
  Random random_;
  const size_t nodes_;
  Peer self_ = base::kNobody;
  std::set<Peer> talking_to_;
  uint64_t seq_ = 0;
  int lives_ = 0;
  wire::FrameBuilder builder_;
  std::set<uint64_t> joins_;  ///< the numbers of its Joins
};

}  // namespace mv::sim
