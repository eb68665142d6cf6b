#include "gossip/lockstep.hpp"

#include "math/average.hpp"

namespace mv::sim {

using namespace std::chrono_literals;

namespace {
std::byte* bytes_of(Model& model) { return reinterpret_cast<std::byte*>(model.data()); }
}  // namespace

Lockstep::Lockstep(const gossip::Config& config, size_t nodes, uint64_t seed) : config_(config), network_(timeline_, Random(seed), {}) {
  for (size_t i = 0; i < nodes; ++i) add(i, Random::mix(seed + i));
  for (const auto& node : nodes_)
    for (const auto& other : nodes_)
      if (other != node && !node->engine->add_peer(other->self).ok()) timeline_.violated("a peer can't be added");
}

void Lockstep::add(size_t number, uint64_t seed) {
  auto node = std::make_unique<Node>();
  node->self.name = fmt::format("n{:04}", number);
  node->self.host = "sim";
  node->self.port = static_cast<uint32_t>(1 + number);
  node->peer = seed | 1;
  node->link = std::make_unique<SimLink>(network_, node->peer);
  gossip::Gossip::Hooks hooks;
  hooks.on_done = [] {};
  hooks.on_more = [this, to = node.get()] { timeline_.after(1us, [to] { to->engine->go_on(); }); };
  node->engine = std::make_unique<gossip::Gossip>(timeline_, *node->link, config_, node->self, seed, node->publisher, std::move(hooks));
  network_.add(node->peer, node->self.name, node->self.address(), *node->engine, [] {});
  nodes_.push_back(std::move(node));
}

void Lockstep::publish(Node& node) {
  node.clock += 1;
  if (!node.publisher.add(node.model.data(), node.model.size(), MV_F64).ok() || !node.publisher.publish(node.clock, 1).ok())
    timeline_.violated("a node can't publish");
}

void Lockstep::fetch(Node& node) { node.engine->fetch(rounds_, {{node.model.size(), MV_F64}}); }

/// Runs until no more events happen. Nothing fails here, but a node that finds all others in exchanges waits until its time is over.
void Lockstep::run() {
  for (bool more = true; more && timeline_.violation().empty();) {
    more = timeline_.step(base::kNever);
    if (more) continue;
    for (const auto& node : nodes_) {
      const base::Nanos due = node->engine->next_deadline();
      if (due == base::kNever || !waits(*node)) continue;
      timeline_.at(due, [to = node.get()] { to->engine->tick(); });
      more = true;
    }
  }
}

/// In pair() a proposal waits for its peer, for zero time.
bool Lockstep::waits(const Node& node) const { return &node != proposer_ && node.engine->fetching(); }

void Lockstep::average(Node& node) {
  if (node.engine->fetching()) return timeline_.violated(fmt::format("the fetch of {} does not end", node.self.name));
  const gossip::FetchResult& caught = node.engine->result();
  if (caught.peer.empty()) return;
  const auto& theirs = node.engine->receive_buffer().description();
  const gossip::Progress own{node.clock, 1}, peer{theirs.clock, theirs.loss};
  const bool exchanged = config_.exchange == gossip::Exchange::kSymmetric;
  const auto factor = exchanged ? gossip::exchanged_factor(config_.interpolation, own, peer) : gossip::factor(config_.interpolation, own, peer);
  if (!factor.ok()) return timeline_.violated(factor.status().text());
  const auto* const bytes = node.engine->receive_buffer().part(0).data();
  if (exchanged)
    math::approach_bytes(MV_F64, bytes_of(node.model), bytes, caught.own->own_values(caught.own_version), node.model.size(), factor.value());
  else
    math::average_bytes(MV_F64, bytes_of(node.model), bytes, node.model.size(), factor.value());
  node.clock = gossip::mixed_clock(factor.value(), node.clock, theirs.clock);
  ++averaged_;
}

void Lockstep::round() {
  averaged_ = 0;
  for (const auto& node : nodes_) publish(*node);
  for (const auto& node : nodes_) fetch(*node);
  run();
  for (const auto& node : nodes_) average(*node);
  ++rounds_;
}

size_t Lockstep::pair(size_t first) {
  averaged_ = 0;
  publish(*nodes_[first]);
  fetch(*nodes_[first]);
  proposer_ = nodes_[first].get();
  run();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Node& other = *nodes_[i];
    if (other.engine->proposals() == 0) continue;
    publish(other);
    fetch(other);
    run();
    proposer_ = nullptr;
    average(*nodes_[first]);
    average(other);
    ++rounds_;
    return i;
  }
  timeline_.violated("no node received the proposal");
  return first;
}

uint64_t Lockstep::fetched_bytes() const {
  uint64_t bytes = 0;
  for (const auto& node : nodes_) bytes += node->engine->fetched_bytes();
  return bytes;
}

uint64_t Lockstep::served_bytes() const {
  uint64_t bytes = 0;
  for (const auto& node : nodes_) bytes += node->engine->serving().served_bytes();
  return bytes;
}

}  // namespace mv::sim
