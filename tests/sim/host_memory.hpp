#pragma once
// One machine, whose processes can map each other's memory.

#include <functional>
#include <memory>
#include <utility>

#include "engine/member.hpp"
#include "network.hpp"

namespace mv::sim {

/// Carries questions for memory, as the shared-memory transport does. Nothing gets lost, not even across a partition.
class SimMachine {
 public:
  /// @param find  the engines of a process; null once it has ended
  SimMachine(Timeline& timeline, Network& network, Random random, std::function<engine::Member*(Peer)> find)
      : timeline_(timeline), network_(network), random_(random), find_(std::move(find)) {}

  void ask(Peer from, Peer of, uint64_t number, replica::HostMemory::Given given) {
    later(of, [this, from, of, number, given = std::move(given)] {
      engine::Member* const asked = find_(of);
      auto memory = asked != nullptr ? asked->parts().memory_for(from, number) : nullptr;
      later(from, [this, from, memory = std::move(memory), given] {
        if (find_(from) != nullptr) given(memory);
      });
    });
  }

 private:
  void later(Peer peer, std::function<void()> work) {
    timeline_.after(Nanos(random_.between(1'000, 2'000'000)), [this, peer, work = std::move(work)] { network_.when_running(peer, work); });
  }

  Timeline& timeline_;
  Network& network_;
  Random random_;
  const std::function<engine::Member*(Peer)> find_;
};

/// A process's view of it.
class SimHostMemory final : public replica::HostMemory {
 public:
  SimHostMemory(SimMachine& machine, Peer self) : machine_(machine), self_(self) {}
  void ask(base::Peer peer, uint64_t number, Given given) override { machine_.ask(self_, peer, number, std::move(given)); }

 private:
  SimMachine& machine_;
  const Peer self_;
};

}  // namespace mv::sim
