#pragma once
// Drives members on virtual time for tests of other parts: flushes, ticks, and network faults.

#include <functional>
#include <memory>
#include <utility>

#include "engine/member.hpp"
#include "network.hpp"
#include "random.hpp"
#include "timeline.hpp"

namespace mv::sim {

/// A node of a test: its member and its driver's state.
struct Kept {
  cluster::Self self;
  std::unique_ptr<SimLink> link;
  std::unique_ptr<engine::Member> member;  ///< null before it starts and after it ends
  std::function<void()> looked_after;      ///< called after each flush, if set
  bool flush_asked = false;
  Nanos armed = base::kNever;
};

inline Conditions draw_conditions(Random& random) {
  Conditions conditions;
  conditions.latency = Nanos(random.between(20'000, 500'000));
  conditions.jitter = Nanos(random.between(0, 3'000'000));
  conditions.lossy = random.chance(0.4);
  if (conditions.lossy) conditions.drop = 0.01 * static_cast<double>(random.between(0, 15));
  if (conditions.lossy) conditions.duplicate = 0.01 * static_cast<double>(random.between(0, 15));
  return conditions;
}

class Keeper {
 public:
  Keeper(Timeline& timeline, Network& network, Random& random) : timeline_(timeline), network_(network), random_(random) {}

  /// To be called after every event at the node's member: flushes it soon, and ticks it when it asks for that.
  void touch(Kept& node) {
    if (node.member == nullptr || std::exchange(node.flush_asked, true)) return;
    later(node, std::chrono::microseconds(10), [this, &node] {
      node.flush_asked = false;
      node.member->flush();
      arm(node);
      if (node.looked_after) node.looked_after();
    });
  }

  /// Runs work later, not before the node runs, and not if it has ended by then.
  void later(Kept& node, Nanos span, std::function<void()> work) {
    timeline_.after(span, [this, &node, peer = node.self.peer, work = std::move(work)]() mutable {
      if (node.member == nullptr || node.self.peer != peer) return;  // it has started again since
      network_.when_running(peer, [&node, peer, work = std::move(work)] {
        if (node.member != nullptr && node.self.peer == peer) work();
      });
    });
  }

  /// A few times, separates two of the nodes for a while, or pauses one.
  template <typename Nodes>
  void disturb(const Nodes& nodes) {
    for (size_t i = random_.below(4); i > 0; --i)
      timeline_.after(Nanos(random_.between(0, 300'000'000)), [this, &nodes] {
        const Kept &a = nodes[random_.below(nodes.size())], &b = nodes[random_.below(nodes.size())];
        const Nanos span(random_.between(1'000'000, 800'000'000));
        if (&a != &b && a.member != nullptr && b.member != nullptr) network_.part(a.self.peer, b.self.peer, span, random_.chance(0.7));
        if (&a == &b && a.member != nullptr) network_.pause(a.self.peer, span);
      });
  }

 private:
  void arm(Kept& node) {
    const Nanos next = node.member->next_deadline();
    if (next == node.armed) return;
    node.armed = next;
    if (next == base::kNever) return;
    later(node, next - timeline_.now(), [this, &node, next] {
      if (node.armed != next) return;
      node.armed = base::kNever;
      node.member->tick();
      touch(node);
    });
  }

  Timeline& timeline_;
  Network& network_;
  Random& random_;
};

}  // namespace mv::sim
