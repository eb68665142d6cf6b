// sim_channel: workers that collect bytes from each other and deliver bytes to each other, while they are cut off, stopped and killed. Each
// call ends in time; the bytes that arrive are complete and correct; every missing answer has a reason.

#include <fmt/core.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "keeper.hpp"
#include "seeds.hpp"

namespace {

using namespace mv;
using namespace mv::sim;
using namespace std::chrono_literals;
using channel::Bytes;

constexpr Nanos kPatience = 20s, kEnd = 90s;
constexpr const char* kChannel = "kv-0/";

/// What a worker gives: its own number, and then bytes that follow from the two numbers.
Bytes bytes_of(uint64_t worker, uint64_t number) {
  Bytes bytes(sizeof(uint64_t) * 2 + Random::mix(worker * 1000 + number) % (5 << 18));
  const uint64_t head[] = {worker, number};
  std::memcpy(bytes.data(), head, sizeof(head));
  for (size_t i = sizeof(head); i < bytes.size(); ++i) bytes[i] = std::byte(worker * 31 + number * 7 + i + (i >> 12));
  return bytes;
}
/// The number of the worker's bytes, or 0 if they are not what it gave.
uint64_t number_of(uint64_t worker, const Bytes& bytes) {
  uint64_t head[2] = {};
  if (bytes.size() < sizeof(head)) return 0;
  std::memcpy(head, bytes.data(), sizeof(head));
  return head[0] == worker && head[1] < 1000 && bytes == bytes_of(worker, head[1]) ? head[1] : 0;
}

class Call final : public base::Operation {
 public:
  explicit Call(std::function<void(const base::Status&)> over) : over_(std::move(over)) {}

 private:
  void ended(const base::Status& status) override { over_(status); }
  const std::function<void(const base::Status&)> over_;
};

class Workers {
 public:
  Workers(uint64_t seed, bool verbose)
      : random_(Random::mix(seed)),
        nodes_(static_cast<size_t>(random_.between(2, 5))),
        disturbed_(random_.chance(0.6)),
        network_(timeline_, random_.fork(), conditions()) {
    network_.verbose = verbose;
  }

  std::string run() {
    for (size_t i = 0; i < nodes_.size(); ++i) start(i);
    timeline_.after(4s, [this] {
      for (Node& node : nodes_) open(node);
    });
    for (int i = 0; i < 8; ++i) {
      Node& node = nodes_[random_.below(nodes_.size() - 1)];
      keeper_.later(node, Nanos(random_.between(5'000'000'000, 40'000'000'000)), [this, &node] { collect(node); });
    }
    // One worker delivers, so that the order of its deliveries is known.
    for (int64_t number = 1; number <= 4; ++number) keeper_.later(nodes_.back(), number * 10s, [this, number] { deliver(nodes_.back(), number); });
    if (disturbed_)
      for (int i = 0; i < 4; ++i) timeline_.at(Nanos(random_.between(5'000'000'000, 40'000'000'000)), [this] { disturb(); });
    while (timeline_.violation().empty() && timeline_.step(kEnd)) {
    }
    for (const Node& node : nodes_) {
      if (node.member == nullptr) continue;
      if (node.open > 0) timeline_.violated(fmt::format("a call of {} has not ended", node.name));
      if (&node != &nodes_.back() && node.taken < node.promised)
        timeline_.violated(fmt::format("{} never found delivery {}", node.name, node.promised));
    }
    if (!disturbed_ && (collected_ == 0 || nodes_.front().taken != 4)) timeline_.violated("too little has happened");
    return timeline_.violation();
  }

 private:
  struct Node : Kept {
    size_t worker = 0;
    std::string name;
    uint64_t given = 0, promised = 0, taken = 0;  ///< numbers of its bytes, and of deliveries
    int open = 0;  ///< its calls
  };

  Conditions conditions() {
    Conditions conditions;
    conditions.latency = Nanos(random_.between(20'000, 500'000));
    conditions.jitter = Nanos(random_.between(0, 3'000'000));
    conditions.lossy = lossy_ = random_.chance(0.4);
    if (conditions.lossy) conditions.drop = conditions.duplicate = conditions.late = 0.01 * static_cast<double>(random_.between(0, 8));
    return conditions;
  }

  void start(size_t i) {
    Node& node = nodes_[i];
    node.worker = i;
    node.name = fmt::format("worker {}", i);
    node.self.peer = random_.next() | 1;
    node.self.rank = static_cast<int64_t>(i);
    node.self.nodes = static_cast<uint32_t>(nodes_.size());
    node.self.role = i == 0 || random_.chance(0.3) ? MV_ROLE_ALL : MV_ROLE_WORKER;
    node.self.is_master = i == 0;
    node.self.master = "sim:0";
    node.self.address = fmt::format("sim:{}", i);
    node.self.host = "sim";
    node.self.heartbeat_timeout = 60s;  // who is stopped here is silent, not lost
    node.link = std::make_unique<SimLink>(network_, node.self.peer);
    rpc::ClientOptions options;
    if (lossy_) options.probe_after = 100ms;
    engine::Member::Events events{[](const cluster::View&) {}, [](const base::Status&) {}, [] {}};
    node.member = std::make_unique<engine::Member>(timeline_, *node.link, node.self, options, std::move(events));
    network_.add(node.self.peer, node.name, node.self.address, *node.member, [this, &node] { keeper_.touch(node); });
    node.member->start();
    keeper_.touch(node);
  }
  void open(Node& node) {
    auto shared = std::make_shared<channel::Shared>();
    shared->limit = 4 << 20;
    // As a program in a barrier: it serves the channel a little after it was woken.
    node.member->channels().open(kChannel, shared, [this, &node] {
      keeper_.later(node, Nanos(random_.between(0, 200'000'000)), [this, &node] { serve(node); });
    });
    node.member->channels().set_giving(kChannel, true);
  }
  void serve(Node& node) {
    const auto due = node.member->channels().take(kChannel);
    if (due.delivered) {
      const uint64_t number = number_of(nodes_.back().worker, *due.delivered);
      if (number <= node.taken) timeline_.violated(fmt::format("{} found delivery {} after {}", node.name, number, node.taken));
      node.taken = number;
    }
    if (due.asked) node.member->channels().give(kChannel, std::make_shared<const Bytes>(bytes_of(node.worker, ++node.given)));
    keeper_.touch(node);
  }

  std::shared_ptr<Call> call(Node& node, std::function<void()> succeeded) {
    ++node.open;
    const Nanos begun = timeline_.now();
    auto call = std::make_shared<Call>([this, &node, begun, succeeded = std::move(succeeded)](const base::Status& status) {
      --node.open;
      if (status.ok()) return succeeded();
      if (!disturbed_ || status.code() != MV_ETIMEOUT || timeline_.now() < begun + kPatience)
        timeline_.violated(fmt::format("{}: {}", node.name, status.text()));
    });
    call->set_deadline(begun + kPatience);
    return call;
  }
  void collect(Node& node) {
    if (node.open > 0) return;  // one call at a time: a worker's later request replaces its earlier one
    const auto bytes = std::make_shared<std::vector<Bytes>>();
    node.member->channels().collect(call(node, [this, &node, bytes] { check(node, *bytes); }), kChannel, bytes);
    keeper_.touch(node);
  }
  void check(const Node& node, const std::vector<Bytes>& bytes) {
    ++collected_;
    for (const Node& other : nodes_) {
      const bool may_miss = &other == &node || other.member == nullptr;
      if (bytes.at(other.worker).empty() ? !may_miss : number_of(other.worker, bytes[other.worker]) == 0)
        timeline_.violated(fmt::format("{} has not got the bytes of {}", node.name, other.name));
    }
  }
  void deliver(Node& node, uint64_t number) {
    if (node.open > 0) return;
    const auto over = [this, number] {
      for (Node& other : nodes_) other.promised = number;
    };
    std::vector<channel::BytesRef> bytes(nodes_.size(), std::make_shared<const Bytes>(bytes_of(node.worker, number)));
    node.member->channels().deliver(call(node, over), kChannel, bytes);
    keeper_.touch(node);
  }

  void disturb() {
    Node& node = nodes_[random_.below(nodes_.size())];
    Node& other = nodes_[random_.below(nodes_.size())];
    const Nanos span(random_.between(100'000'000, 12'000'000'000));
    const uint64_t kind = random_.below(3);
    if (kind == 0 && &node != &other) return network_.part(node.self.peer, other.self.peer, span, random_.chance(0.5));
    if (kind == 1) return network_.pause(node.self.peer, span);
    if (kind != 2 || node.worker == 0 || node.member == nullptr) return;
    network_.remove(node.self.peer, false, random_.chance(0.5));
    node.member.reset();
  }

  Timeline timeline_;
  Random random_;
  std::vector<Node> nodes_;
  const bool disturbed_;
  bool lossy_ = false;
  Network network_;
  Keeper keeper_{timeline_, network_, random_};
  int collected_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  return mv::sim::run_seeds(argc, argv, "Channels between workers, on virtual time, with network faults from the seed.",
                            [](const mv::sim::SeedRun& asked) { return Workers(asked.seed, asked.verbose).run(); },
                            [](const mv::sim::SeedRun&) { return std::string(); });
}
