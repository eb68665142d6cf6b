#pragma once
// Gossiping nodes on one thread and virtual time: they train (simulated by waiting), publish, fetch and average.

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/gossip/gossip.hpp"
#include "network.hpp"

namespace mv::sim {

/// The parameters of a swarm.
struct Habits {
  gossip::Config config;
  size_t elements = 8;  ///< of each model, all of the same value
  Nanos step{50'000'000};
  Nanos again{0};  ///< interval of further publishing in a step; 0: never. Not with exchanges of versions
  double same_machine = 0;  ///< the probability that two nodes share a machine and read each other's memory
};

class Swarm {
 public:
  Swarm(Timeline& timeline, Network& network, Random random, Habits habits)
      : timeline_(timeline), network_(network), random_(random), habits_(std::move(habits)) {}

  /// All nodes, with values 0, 1, 2, …
  void start(size_t count);
  void kill(size_t i);
  /// As another process at the same address, with its initial value.
  void restart(size_t i);
  /// Suspends its process for `span`.
  void pause(size_t i, Nanos span);
  void part(size_t a, size_t b, Nanos span, bool breaks);

  size_t size() const { return nodes_.size(); }
  bool alive(size_t i) const { return nodes_[i]->engine != nullptr; }
  double value(size_t i) const { return nodes_[i]->values.front(); }
  uint64_t averaged(size_t i) const { return nodes_[i]->averaged; }
  uint64_t steps(size_t i) const { return nodes_[i]->steps; }
  /// How often others have got something from this incarnation.
  uint64_t served(size_t i) const { return nodes_[i]->served; }
  /// Largest minus smallest value of the living nodes.
  double spread() const;
  /// Exchanges that were averaged on one side only, although neither node recorded an event that explains it.
  size_t unexplained_halves() const;

 private:
  struct Node {
    size_t number = 0;
    uint64_t life = 0;  ///< counts restarts: work planned in an earlier life is dropped
    gossip::Node self;
    base::Peer peer = base::kNobody;
    std::unique_ptr<gossip::Publisher> publisher;
    std::unique_ptr<SimLink> link;
    std::unique_ptr<gossip::Gossip> engine;
    std::vector<float> values;
    double clock = 0;
    uint64_t version = 0;  ///< published
    uint64_t steps = 0, averaged = 0, served = 0;
    Nanos began{0}, armed = base::kNever;
    Nanos stopped_until{0};
    uint64_t stops = 0, stops_at_begin = 0;
  };

  void start(Node& node);
  void step(Node& node);
  void publish(Node& node);
  void publish_again(Node& node);
  void finished(Node& node);
  void average(Node& node);
  void note_exchange(const Node& node, const std::string& partner);
  void arm(Node& node);
  void later(Node& node, Nanos span, std::function<void()> work);
  Node* of(base::Peer peer);

  Timeline& timeline_;
  Network& network_;
  Random random_;
  const Habits habits_;
  /// Two lives, and the versions that they exchanged, smaller life first; the value is how many of the two have averaged.
  using Exchanged = std::array<uint64_t, 4>;
  std::map<Exchanged, int> exchanges_;
  size_t explained_ = 0;  ///< exchanges whose outcome one side may not know, because a life ended
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace mv::sim
