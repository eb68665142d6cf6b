#include "checkpoints/world.hpp"

#include <algorithm>
#include <utility>
#include <cstdio>
#include <cstring>

#include "checkpoints/worker.hpp"
#include "host_memory.hpp"

namespace mv::sim {

using namespace std::chrono_literals;

namespace {
constexpr Nanos kLimit = 400s;
constexpr Nanos kMillisecond = 1ms;
constexpr Nanos kHeartbeat = 6s;
constexpr uint64_t kKeepsGets = 0x6b65'6570'7367'6574;
/// Often, because only this shows whether the copies of what workers got are equal.
constexpr Nanos kCompareEvery = 20ms;
}  // namespace

// ---- expected content

Content Content::of(size_t worker) const {
  Content own;
  for (uint64_t row = 0; row < kRows; ++row)
    own.dense[row * kMostWorkers + worker] = dense[row * kMostWorkers + worker];
  for (const auto& [key, amount] : keys)
    if (owner_of(key) == worker) own.keys.emplace(key, amount);
  return own;
}

Content content_of(const Disk::Checkpoint& checkpoint) {
  Content content;
  for (const auto& [server, tables] : checkpoint.files)
    for (const Disk::Table& table : tables)
      for (const Disk::Chunk& chunk : table.chunks) {
        if (table.entry.spec.name == "dense")
          std::memcpy(&content.dense[chunk.first * kMostWorkers], chunk.values.data(), chunk.values.size());
        for (size_t i = 0; i < chunk.ids.size(); ++i)
          std::memcpy(&content.keys[chunk.ids[i]], chunk.values.data() + i * sizeof(int64_t), sizeof(int64_t));
      }
  return content;
}

std::string Promises::wrong_with(const Content& content) const {
  const bool exact = in_step && std::none_of(killed.begin(), killed.end(), [](bool gone) { return gone; });
  std::vector<size_t> fitting;  // saves at which the counts of all workers so far were these
  for (size_t worker = 0; worker < kMostWorkers; ++worker) {
    if (killed[worker]) continue;
    const Content own = content.of(worker);
    if (at_save[worker].empty()) {
      if (!(own == Content())) return fmt::format("worker {} has added nothing, but has values in it", worker);
      continue;
    }
    std::vector<size_t> here;
    for (size_t save = 0; save < at_save[worker].size(); ++save)
      if (at_save[worker][save] == own) here.push_back(save);
    if (here.empty()) return fmt::format("worker {} never had this content at a save", worker);
    std::vector<size_t> both;
    std::set_intersection(fitting.begin(), fitting.end(), here.begin(), here.end(), std::back_inserter(both));
    if (worker > 0 && exact && both.empty())
      return fmt::format("worker {} had this content at a different save than the workers before it", worker);
    fitting = worker > 0 ? both : here;
  }
  return "";
}

// ---- plans

namespace {

void choose_network(Plan& plan, Random& random) {
  Conditions& conditions = plan.conditions;
  conditions.latency = Nanos(random.between(20'000, 500'000));
  conditions.jitter = Nanos(random.between(0, 3'000'000));
  conditions.lossy = random.chance(0.4);
  if (!conditions.lossy) return;
  conditions.drop = 0.01 * static_cast<double>(random.between(0, 20));
  conditions.duplicate = 0.01 * static_cast<double>(random.between(0, 20));
  conditions.late = 0.01 * static_cast<double>(random.between(0, 10));
  plan.probe_after = kMillisecond * random.between(50, 200);
}

void choose_roles(Plan& plan, Random& random) {
  for (uint64_t nodes = 1 + random.below(kMostWorkers); nodes > 0; --nodes)
    plan.roles.push_back(random.chance(0.5) ? MV_ROLE_ALL : random.chance(0.5) ? MV_ROLE_WORKER : MV_ROLE_SERVER);
  if (std::none_of(plan.roles.begin(), plan.roles.end(), [](int role) { return (role & MV_ROLE_SERVER) != 0; }))
    plan.roles.back() = MV_ROLE_ALL;
  if (std::none_of(plan.roles.begin(), plan.roles.end(), [](int role) { return (role & MV_ROLE_WORKER) != 0; }))
    plan.roles.back() = MV_ROLE_ALL;
}

/// Servers that may die, behind a node 0 that may not.
void add_servers(Plan& plan, Random& random) {
  if (plan.roles.front() == MV_ROLE_SERVER) plan.roles.front() = MV_ROLE_ALL;
  for (uint64_t more = 1 + random.below(3); more > 0; --more) plan.roles.push_back(MV_ROLE_SERVER);
  const auto servers = [&] { return std::ranges::count_if(plan.roles, [](int role) { return (role & MV_ROLE_SERVER) != 0; }); };
  while (std::cmp_less_equal(servers(), plan.replicas)) plan.roles.push_back(MV_ROLE_SERVER);
}

void choose_victim(Plan& plan, Random& random) {
  if (!random.chance(0.8)) return;
  do plan.killed = 1 + random.below(plan.roles.size() - 1);
  while ((plan.roles[plan.killed] & MV_ROLE_SERVER) == 0);
  plan.killed_at = kMillisecond * random.between(0, 400);
  if (plan.replicas < 2 || random.chance(0.5)) return;
  while (std::ranges::count_if(plan.roles, [](int role) { return (role & MV_ROLE_SERVER) != 0; }) < 5) plan.roles.push_back(MV_ROLE_SERVER);  // a majority stays
  do plan.killed_too = 1 + random.below(plan.roles.size() - 1);
  while ((plan.roles[plan.killed_too] & MV_ROLE_SERVER) == 0 || plan.killed_too == plan.killed);
  plan.roles[plan.killed_too] = MV_ROLE_SERVER;
  plan.killed_too_at = plan.killed_at + kMillisecond * random.between(0, 200);
}

}  // namespace

Plan make_plan(uint64_t seed, size_t replicas) {
  Random random(seed);
  Plan plan;
  plan.seed = seed;
  choose_roles(plan, random);
  choose_network(plan, random);
  plan.rounds = 1 + random.below(5);
  plan.failing = random.chance(0.3) ? 0.15 : 0;
  plan.hasty = random.chance(0.15) ? 0.3 : 0;
  plan.parts = random.chance(0.5) ? random.below(5) : 0;
  if (plan.hasty == 0 && random.chance(0.4)) {
    plan.loads.resize(plan.rounds);
    plan.loads[random.below(plan.rounds)] = true;
  }
  plan.replicas = replicas;
  if (replicas > 0) {
    add_servers(plan, random);
    choose_victim(plan, random);
    if (random.chance(0.6)) plan.behind = 0;
  } else if (random.chance(0.35) && plan.roles.size() > 1) {
    plan.killed = random.below(plan.roles.size());
    plan.killed_at = kMillisecond * random.between(0, 400);
  }
  return plan;
}

Plan make_successors(uint64_t seed, size_t replicas) {
  Random random(~seed);
  Plan plan;
  plan.seed = seed;
  choose_roles(plan, random);
  choose_network(plan, random);
  plan.parts = random.below(3);
  plan.replicas = replicas;
  if (replicas > 0) {
    add_servers(plan, random);
    choose_victim(plan, random);
  }
  return plan;
}

/// The same in the cluster that loads the checkpoints.
bool Plan::keeps_gets() const { return replicas > 0 && Random::mix(seed ^ kKeepsGets) % 3 == 0; }

std::string Plan::describe() const {
  std::string text = fmt::format("{} rounds, {} network", rounds, conditions.lossy ? "lossy" : "reliable");
  for (const int role : roles) text += role == MV_ROLE_ALL ? " A" : role == MV_ROLE_SERVER ? " S" : " W";
  if (failing > 0) text += ", failing disk";
  if (hasty > 0) text += ", hasty";
  if (behind > 0) text += ", behind";
  if (replicas > 0) text += ", replicas";
  if (keeps_gets()) text += ", keeps gets";
  if (parts > 0) text += fmt::format(", {} partitions", parts);
  if (std::find(loads.begin(), loads.end(), true) != loads.end()) text += ", loads";
  if (killed != SIZE_MAX)
    text += fmt::format(", node {} killed at {:.1f} ms", killed, static_cast<double>(killed_at.count()) / 1e6);
  if (killed_too != SIZE_MAX) text += fmt::format(", node {} at {:.1f} ms", killed_too, static_cast<double>(killed_too_at.count()) / 1e6);
  return text;
}

// ---- the cluster

namespace {

class World final : private Around {
 public:
  World(Timeline& timeline, Disk& disk, const Plan& plan, Promises& promises, bool are_successors, bool verbose)
      : timeline_(timeline),
        disk_(disk),
        plan_(plan),
        promises_(promises),
        are_successors_(are_successors),
        verbose_(verbose),
        random_(Random::mix(plan.seed + are_successors)),
        network_(timeline, random_.fork(), plan.conditions),
        machine_(timeline, network_, Random(Random::mix(~plan.seed)), [this](Peer peer) { return node(peer).member.get(); }) {
    disk_.failing = plan.failing;
    for (size_t place = 0; place < plan.roles.size(); ++place) add_node(place);
  }

  void run() {
    const Nanos limit = timeline_.now() + kLimit;
    while (timeline_.violation().empty() && !all_ended() && timeline_.step(limit)) {
    }
    if (all_ended()) return;
    std::string who;
    for (const auto& node : nodes_)
      if (node->member != nullptr)
        who += fmt::format("\n  node {} {}", node->place, node->worker == nullptr ? "serves" : node->worker->state());
    timeline_.violated("some nodes have not ended:" + who);
  }

 private:
  struct Node {
    size_t place = 0;
    cluster::Self self;
    std::unique_ptr<SimLink> link;
    std::unique_ptr<DiskInMemory> storage;
    std::unique_ptr<SimHostMemory> memory;  ///< of half of the seeds: back-ups have journals
    std::unique_ptr<engine::Member> member;
    std::shared_ptr<Worker> worker;
    bool finished = false, ending = false, flush_asked = false;
    Nanos armed = base::kNever;
  };

  Timeline& timeline() override { return timeline_; }
  Disk& disk() override { return disk_; }
  const Plan& plan() const override { return plan_; }
  Promises& promises() override { return promises_; }
  bool anyone_killed() const override { return killed_ && !plan_.is_harmless(); }
  void touched(Peer self) override { touch(node(self)); }
  void left(Peer self) override {
    Node& gone = node(self);
    if ((gone.self.role & MV_ROLE_SERVER) == 0 && !gone.self.is_master) return end(gone);
    gone.finished = true;
    touch(gone);
  }
  void say(Peer self, const std::string& what) override {
    if (verbose_)
      std::printf("%11.4f  node %zu: %s\n", static_cast<double>(timeline_.now().count()) / 1e6, node(self).place,
                  what.c_str());
  }
  void later(Peer self, Nanos span, std::function<void()> work) override {
    timeline_.after(span, [this, self, work = std::move(work)]() mutable {
      network_.when_running(self, [this, self, work = std::move(work)] {
        if (node(self).member == nullptr) return;
        work();
        touch(node(self));
      });
    });
  }

  void add_node(size_t place) {
    nodes_.push_back(std::make_unique<Node>());
    Node* node = nodes_.back().get();
    node->place = place;
    cluster::Self& self = node->self;
    self.peer = random_.next() | 1;
    self.rank = static_cast<int64_t>(place);
    self.role = plan_.roles[place];
    self.nodes = static_cast<uint32_t>(plan_.roles.size());
    self.is_master = place == 0;
    self.master = "sim:0";
    self.address = fmt::format("sim:{}", place);
    self.host = "sim";
    self.pid = static_cast<uint32_t>(1000 + place);
    self.heartbeat_timeout = kHeartbeat;
    self.replicas = static_cast<uint32_t>(plan_.replicas);
    node->link = std::make_unique<SimLink>(network_, self.peer);
    node->storage = std::make_unique<DiskInMemory>(
        disk_,
        [this, peer = self.peer](Nanos span, std::function<void()> work) { later(peer, span, std::move(work)); });
    timeline_.after(Nanos(random_.between(0, 50'000'000)), [this, node] { start(*node); });
  }

  void start(Node& node) {
    if (node.ending) return;
    rpc::ClientOptions options;
    options.probe_after = plan_.probe_after;
    engine::Member::Events events;
    events.on_ready = [this, &node](const cluster::View&) { ready(node); };
    events.on_failed = [this, &node](const base::Status& why) {
      const bool dissolves = std::any_of(nodes_.begin(), nodes_.end(), [](const auto& other) { return other->ending; });
      if (!killed_ && !dissolves)
        timeline_.violated(fmt::format("node {} could not join the cluster: {}", node.place, why.text()));
      end(node);
    };
    events.on_change = [] {};
    node.member = std::make_unique<engine::Member>(timeline_, *node.link, node.self, options, std::move(events), false,
                                                   node.storage.get());
    if (plan_.replicas > 0 && plan_.seed % 2 == 0) {
      node.memory = std::make_unique<SimHostMemory>(machine_, node.self.peer);
      node.member->parts().use(*node.memory);
    }
    network_.add(node.self.peer, fmt::format("node {}", node.place), node.self.address, *node.member,
                 [this, &node] { touch(node); });
    node.member->start();
    touch(node);
  }

  void compare_later(Node& node) {
    later(node.self.peer, kCompareEvery, [this, &node] {
      node.member->parts().compare();
      compare_later(node);
    });
  }

  void ready(Node& node) {
    if (plan_.keeps_gets()) compare_later(node);
    if ((node.self.role & MV_ROLE_WORKER) == 0) {
      node.finished = true;
    } else {
      node.worker = std::make_shared<Worker>(static_cast<Around&>(*this), *node.member, random_.fork(), are_successors_);
      node.worker->start();
    }
    if (++ready_ == nodes_.size()) disturb();
  }

  void disturb() {
    for (size_t i = 0; i < plan_.parts; ++i)
      timeline_.after(kMillisecond * random_.between(0, 400),
                      [this, a = random_.below(nodes_.size()), b = random_.below(nodes_.size()),
                       breaks = random_.chance(0.7), span = kMillisecond * random_.between(1, 500)] {
                        if (a != b && nodes_[a]->member != nullptr && nodes_[b]->member != nullptr)
                          network_.part(nodes_[a]->self.peer, nodes_[b]->self.peer, span, breaks);
                      });
    if (plan_.killed == SIZE_MAX) return;
    timeline_.after(plan_.killed_at, [this] { kill(*nodes_[plan_.killed]); });
    if (plan_.killed_too != SIZE_MAX) timeline_.after(plan_.killed_too_at, [this] { kill(*nodes_[plan_.killed_too]); });
  }

  void kill(Node& node) {
    if (node.member == nullptr || node.ending) return;
    killed_ = true;
    if (const int64_t worker = node.member->cluster().view().worker_id(node.self.peer); worker >= 0)
      promises_.killed[static_cast<size_t>(worker)] = true;
    if (verbose_) std::printf("node %zu is killed\n", node.place);
    network_.remove(node.self.peer, false, true);
    drop(node);
  }

  void drop(Node& node) {
    node.ending = true;
    node.storage.reset();
    node.worker.reset();
    node.member.reset();
  }

  void end(Node& node) {
    if (std::exchange(node.ending, true)) return;
    later(node.self.peer, Nanos(random_.between(0, 2'000'000)), [this, &node] {
      if (node.member->parts().differing() > 0)
        timeline_.violated(fmt::format("node {} keeps a copy that differs from its server's tables", node.place));
      network_.remove(node.self.peer, true, true);
      timeline_.after(Nanos(0), [this, &node] { drop(node); });
    });
  }

  Node& node(Peer peer) {
    return **std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& node) { return node->self.peer == peer; });
  }

  void touch(Node& node) {
    if (node.member == nullptr || std::exchange(node.flush_asked, true)) return;
    timeline_.after(Nanos(random_.between(0, 20'000)), [this, &node] {
      network_.when_running(node.self.peer, [this, &node] {
        node.flush_asked = false;
        if (node.member == nullptr) return;
        node.member->flush();
        arm(node);
        if (node.finished && node.member->cluster().all_workers_gone()) end(node);
      });
    });
  }

  void arm(Node& node) {
    const Nanos next = node.member->next_deadline();
    if (next == node.armed) return;
    node.armed = next;
    if (next == base::kNever) return;
    timeline_.at(next, [this, &node, next] {
      network_.when_running(node.self.peer, [this, &node, next] {
        if (node.member == nullptr || node.armed != next) return;
        node.armed = base::kNever;
        node.member->tick();
        touch(node);
      });
    });
  }

  bool all_ended() const {
    return std::all_of(nodes_.begin(), nodes_.end(),
                       [](const auto& node) { return node->ending && node->member == nullptr; });
  }

  Timeline& timeline_;
  Disk& disk_;
  const Plan plan_;
  Promises& promises_;
  const bool are_successors_, verbose_;
  Random random_;
  Network network_;
  SimMachine machine_;
  std::vector<std::unique_ptr<Node>> nodes_;
  size_t ready_ = 0;
  bool killed_ = false;
};

}  // namespace

void run_cluster(Timeline& timeline, Disk& disk, const Plan& plan, Promises& promises, bool are_successors, bool verbose) {
  World(timeline, disk, plan, promises, are_successors, verbose).run();
}

}  // namespace mv::sim
