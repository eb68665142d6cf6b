#include "gossip/swarm.hpp"

#include <algorithm>

#include "math/average.hpp"

namespace mv::sim {

using namespace std::chrono_literals;

void Swarm::start(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    nodes_.push_back(std::make_unique<Node>());
    nodes_[i]->number = i;
    nodes_[i]->self = {fmt::format("n{:04}", i), "sim", static_cast<uint32_t>(1 + i)};
  }
  for (const auto& node : nodes_) start(*node);
}

void Swarm::start(Node& node) {
  ++node.life;
  node.peer = random_.next() | 1;
  node.clock = 0;
  node.served = 0;
  node.version = 0;
  node.armed = base::kNever;
  node.values.assign(habits_.elements, static_cast<float>(node.number));
  node.publisher = std::make_unique<gossip::Publisher>();
  node.link = std::make_unique<SimLink>(network_, node.peer);
  gossip::Gossip::Hooks hooks;
  hooks.on_done = [this, &node] { finished(node); };
  hooks.on_more = [this, &node] { later(node, 5us, [&node] { node.engine->go_on(); }); };
  hooks.mapped = [this, &node](base::Peer peer) -> std::shared_ptr<gossip::SnapshotReader> {
    Node* const other = of(peer);
    const bool together = other != nullptr && other->number % 7 < 7 * habits_.same_machine && node.number % 7 < 7 * habits_.same_machine;
    return together ? other->publisher->reader() : nullptr;
  };
  node.engine = std::make_unique<gossip::Gossip>(timeline_, *node.link, habits_.config, node.self, random_.next(), *node.publisher, std::move(hooks));
  for (const auto& other : nodes_)
    if (other.get() != &node && !node.engine->add_peer(other->self).ok()) timeline_.violated("a peer can't be added");
  network_.add(node.peer, node.self.name, node.self.address(), *node.engine, [this, &node] { arm(node); });
  later(node, Nanos(random_.between(0, habits_.step.count())), [this, &node] { step(node); });
  if (habits_.again > 0ns) later(node, habits_.again, [this, &node] { publish_again(node); });
}

void Swarm::kill(size_t i) {
  Node& node = *nodes_[i];
  if (node.engine == nullptr) return;
  ++node.life;
  explained_ += 1 + node.engine->exchanges().half + node.engine->exchanges().unsettled;  // including its current exchange
  network_.remove(node.peer, false, random_.chance(0.7));
  node.engine.reset();
}

void Swarm::restart(size_t i) {
  if (nodes_[i]->engine == nullptr) start(*nodes_[i]);
}

void Swarm::pause(size_t i, Nanos span) {
  Node& node = *nodes_[i];
  ++node.stops;
  node.stopped_until = std::max(node.stopped_until, timeline_.now() + span);
  network_.pause(node.peer, span);
}

void Swarm::part(size_t a, size_t b, Nanos span, bool breaks) {
  if (a != b && alive(a) && alive(b)) network_.part(nodes_[a]->peer, nodes_[b]->peer, span, breaks);
}

void Swarm::publish(Node& node) {
  const auto added = node.publisher->add(node.values.data(), node.values.size(), MV_F32);
  if (!added.ok() || !node.publisher->publish(node.clock, 1).ok()) timeline_.violated("a node can't publish");
  ++node.version;
}

void Swarm::publish_again(Node& node) {
  publish(node);
  later(node, habits_.again, [this, &node] { publish_again(node); });
}

/// One training step: publish and fetch; a fetched version is averaged in when the training time is over.
void Swarm::step(Node& node) {
  ++node.steps;
  node.clock += 1;
  publish(node);
  node.began = timeline_.now();
  node.stops_at_begin = node.stops;
  node.engine->fetch(node.steps - 1, {{node.values.size(), MV_F32}});
  arm(node);
}

void Swarm::finished(Node& node) {
  const Nanos took = timeline_.now() - node.began;
  const bool stopped = node.stops != node.stops_at_begin || node.stopped_until > node.began;
  if (took > habits_.config.timeout + 1ms && !stopped)
    timeline_.violated(fmt::format("{} waited for {} ms", node.self.name, std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  average(node);
  // No two steps take the same time. Otherwise two nodes that never wait long enough for a partner would miss each other for ever.
  const Nanos length(random_.between(habits_.step.count() * 9 / 10, habits_.step.count() * 11 / 10));
  const Nanos left = std::max(length - took, Nanos(1'000));
  later(node, left, [this, &node] { step(node); });
}

void Swarm::average(Node& node) {
  const std::string& from = node.engine->result().peer;
  if (from.empty()) return;
  const auto bytes = node.engine->receive_buffer().part(0);
  const auto* const theirs = reinterpret_cast<const float*>(bytes.data());
  if (std::any_of(theirs, theirs + node.values.size(), [&](float value) { return value != theirs[0]; }))
    timeline_.violated(fmt::format("{} got a torn snapshot from {}", node.self.name, from));
  const auto& description = node.engine->receive_buffer().description();
  const gossip::Progress own{node.clock, 1}, peer{description.clock, description.loss};
  const bool exchanged = habits_.config.exchange == gossip::Exchange::kSymmetric;
  const auto& how = habits_.config.interpolation;
  const auto factor = exchanged ? gossip::exchanged_factor(how, own, peer) : gossip::factor(how, own, peer);
  if (!factor.ok()) return timeline_.violated(factor.status().text());
  auto* const values = reinterpret_cast<std::byte*>(node.values.data());
  const gossip::FetchResult& caught = node.engine->result();
  if (exchanged)
    math::approach_bytes(MV_F32, values, bytes.data(), caught.own->own_values(caught.own_version), node.values.size(), factor.value());
  else
    math::average_bytes(MV_F32, values, bytes.data(), node.values.size(), factor.value());
  node.clock = gossip::mixed_clock(factor.value(), node.clock, description.clock);
  if (exchanged) note_exchange(node, from);
  ++node.averaged;
  for (const auto& other : nodes_)
    if (other->self.name == from) ++other->served;
}

void Swarm::note_exchange(const Node& node, const std::string& partner) {
  const base::Peer life = node.engine->peers().all().at(partner).last_life;
  const uint64_t theirs = node.engine->receive_buffer().description().version;
  ++exchanges_[node.peer < life ? Exchanged{node.peer, node.version, life, theirs} : Exchanged{life, theirs, node.peer, node.version}];
}

size_t Swarm::unexplained_halves() const {
  size_t halves = 0, explained = explained_;
  for (const auto& [which, sides] : exchanges_) halves += sides == 1;
  for (const auto& node : nodes_) {
    if (node->engine == nullptr) continue;
    explained += node->engine->exchanges().half + node->engine->exchanges().unsettled + node->engine->fetching();
  }
  return halves > explained ? halves - explained : 0;
}

void Swarm::arm(Node& node) {
  if (node.engine == nullptr) return;
  const Nanos next = node.engine->next_deadline();
  if (next == node.armed) return;
  node.armed = next;
  if (next == base::kNever) return;
  later(node, next - timeline_.now(), [this, &node, next] {
    if (node.armed != next) return;
    node.armed = base::kNever;
    node.engine->tick();
    arm(node);
  });
}

void Swarm::later(Node& node, Nanos span, std::function<void()> work) {
  timeline_.after(span, [this, &node, life = node.life, work = std::move(work)] {
    if (node.life != life) return;
    network_.when_running(node.peer, [&node, life, work] {
      if (node.life == life) work();
    });
  });
}

Swarm::Node* Swarm::of(base::Peer peer) {
  for (const auto& node : nodes_)
    if (node->peer == peer && node->engine != nullptr) return node.get();
  return nullptr;
}

double Swarm::spread() const {
  double least = 1e300, most = -1e300;
  for (const auto& node : nodes_) {
    if (node->engine == nullptr) continue;
    least = std::min<double>(least, node->values.front());
    most = std::max<double>(most, node->values.front());
  }
  return most - least;
}

}  // namespace mv::sim
