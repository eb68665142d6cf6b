#pragma once
// Gossiping nodes in lockstep on the simulator's network: all publish, then all fetch, then all average. The result of a round can be
// computed, and is compared with that.

#include <memory>
#include <string>
#include <vector>

#include "engine/gossip/gossip.hpp"
#include "network.hpp"

namespace mv::sim {

using Model = std::vector<double>;

class Lockstep {
 public:
  Lockstep(const gossip::Config& config, size_t nodes, uint64_t seed);

  size_t size() const { return nodes_.size(); }
  Model& model(size_t i) { return nodes_[i]->model; }
  /// One round of all nodes.
  void round();
  /// One exchange: node `first` proposes to a peer of its choice, which takes part only then. Returns that peer's number.
  size_t pair(size_t first);
  /// The number of nodes that averaged in the last round.
  size_t averaged() const { return averaged_; }
  /// All bytes that nodes have fetched, and served, by messages.
  uint64_t fetched_bytes() const;
  uint64_t served_bytes() const;
  const gossip::ExchangeTally& exchanges(size_t i) const { return nodes_[i]->engine->exchanges(); }
  const std::string& violation() const { return timeline_.violation(); }

 private:
  struct Node {
    gossip::Node self;
    base::Peer peer = base::kNobody;
    gossip::Publisher publisher;
    std::unique_ptr<SimLink> link;
    std::unique_ptr<gossip::Gossip> engine;
    Model model;
    double clock = 0;
  };
  void add(size_t number, uint64_t seed);
  void publish(Node& node);
  void fetch(Node& node);
  void average(Node& node);
  void run();
  bool waits(const Node& node) const;

  const gossip::Config config_;
  Timeline timeline_;
  Network network_;
  std::vector<std::unique_ptr<Node>> nodes_;
  uint64_t rounds_ = 0;
  size_t averaged_ = 0;
  const Node* proposer_ = nullptr;
};

}  // namespace mv::sim
