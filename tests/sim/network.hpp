#pragma once
// A network with random faults from a seed, and each node's Link to it.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/link.hpp"
#include "timeline.hpp"
#include "wire/frame.hpp"

namespace mv::sim {

using base::Peer;

struct Conditions {
  /// False: like TCP, in order and without losses during a connection; a break loses the messages in flight. True: single messages are
  /// lost, duplicated, delayed and reordered.
  bool lossy = false;
  double drop = 0, duplicate = 0, late = 0;
  Nanos latency{0}, jitter{0};
  double staged = 0.75;  ///< the share of large payloads that arrive in pieces, directly into the receiver's memory
};

/// A message in flight.
struct Flight {
  Peer from, to;
  uint64_t life;
  std::vector<std::byte> head;
  base::PayloadRef tail;  ///< until it departs; a message to the node itself is read on arrival
  std::shared_ptr<const std::vector<std::byte>> payload;
  base::SinkRef sink;
  size_t received = 0;
  bool stopped = false;  ///< its sender died before it left

  const wire::Message& message() const {
    return *flatbuffers::GetRoot<wire::Message>(head.data() + wire::kPrefixBytes);
  }
  std::span<const std::byte> body() const;
};
using FlightRef = std::shared_ptr<Flight>;

/// Connects endpoints, carries their messages, and makes breaks on request.
class Network {
 public:
  Network(Timeline& timeline, Random random, Conditions conditions)
      : timeline_(timeline), random_(random), conditions_(conditions) {}

  /// Adds a node that listens. `touched` is called after every event reported to it.
  void add(Peer peer, std::string name, std::string address, base::LinkEvents& events, std::function<void()> touched);
  /// Removes a node. If `orderly`, its sent messages still leave. If `told`, its peers learn of the end, except across a partition.
  void remove(Peer peer, bool orderly, bool told);

  /// Separates these two for a while. On a reliable network either the connection breaks and is made again, or all messages wait; on a
  /// lossy one, messages sent meanwhile are lost.
  void part(Peer a, Peer b, Nanos span, bool breaks);
  /// As a firewall that lets one direction through: messages from the one to the other wait, or on a lossy network are lost.
  void mute(Peer from, Peer to, Nanos span);

  /// Pauses this node's process: its messages wait.
  void pause(Peer peer, Nanos span);
  /// Runs work of this node as soon as it runs.
  void when_running(Peer peer, std::function<void()> work);

  void dial(Peer from, const std::string& address);
  void send(Peer from, Peer to, const base::Frame& frame);
  void close(Peer from, Peer peer);

  const std::string& name(Peer peer) const;
  bool verbose = false;

 private:
  struct Endpoint {
    std::string name, address;
    base::LinkEvents* events = nullptr;  ///< null once it has ended
    std::function<void()> touched;
    std::set<Peer> fenced;        ///< ignored for good
    std::set<FlightRef> leaving;  ///< sent, with a payload that has not left
    Nanos paused_until{0};
  };
  /// One direction of a connection.
  struct Way {
    Nanos departs{0}, arrives{0};  ///< of the newest message
    int dropped = 0;               ///< in a row
    Nanos silent_until{0};
  };
  struct Connection {
    bool up[2] = {false, false};  ///< as seen by the lower and the higher peer
    Nanos up_at[2] = {};          ///< when they learn, or learned, of it
    bool ended = true;
    uint64_t life = 0;  ///< counts breaks: messages of an earlier life do not arrive
    Nanos silent_until{0};
    std::string address[2];  ///< the address by which each side calls the other
    Way way[2];
  };
  static std::pair<Peer, Peer> pair(Peer a, Peer b) { return {std::min(a, b), std::max(a, b)}; }
  /// When messages from the one can reach the other again.
  Nanos silent_until(Peer from, Peer to);
  /// Which of the two sides of its connection with `other` this peer is.
  static int side(Peer self, Peer other) { return self < other ? 0 : 1; }
  Nanos delay();
  Endpoint* living(Peer peer);
  void connect(Peer dialer, Peer listener, const std::string& dialed);
  void schedule_up(Peer self, Peer other, Nanos when);
  void come_up(Peer self, Peer other, uint64_t life);
  void lose(Peer self, Peer other, Nanos when, const std::string& why);
  bool is_dropped(Way& way, Nanos silent_until);
  void launch(const FlightRef& flight, Nanos departs, Nanos arrives, Nanos ends);
  void launch_in_order(const FlightRef& flight, Connection& connection);
  void launch_loosely(const FlightRef& flight, Connection& connection);
  Nanos transfer_time(const Flight& flight);
  std::shared_ptr<const std::vector<std::byte>> copy_of(std::span<const std::byte> bytes);
  void depart(const FlightRef& flight);
  bool arrives(const Flight& flight);
  void at_arrival(const FlightRef& flight, Nanos when, void (Network::*step)(const FlightRef&));
  void deliver(const FlightRef& flight);
  void deliver_header(const FlightRef& flight);
  void deliver_piece(const FlightRef& flight, size_t bytes);
  void deliver_end(const FlightRef& flight);
  void trace(const char* what, const Flight& flight);
  void trace(const char* what, Peer a, Peer b);

  Timeline& timeline_;
  Random random_;
  const Conditions conditions_;
  std::unordered_map<Peer, Endpoint> endpoints_;
  std::map<std::string, Peer> listeners_;
  std::map<std::pair<Peer, Peer>, Connection> connections_;
  std::weak_ptr<const std::vector<std::byte>> departed_;  ///< the newest payload that has left: equal ones share its memory
};

/// A node's view of the network.
class SimLink final : public base::Link {
 public:
  SimLink(Network& network, Peer self) : network_(network), self_(self) {}
  void dial(const std::string& address) override { network_.dial(self_, address); }
  void send(Peer to, const base::Frame& frame) override { network_.send(self_, to, frame); }
  void close(Peer peer) override { network_.close(self_, peer); }

 private:
  Network& network_;
  const Peer self_;
};

}  // namespace mv::sim
