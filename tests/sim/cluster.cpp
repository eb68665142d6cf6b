#include "cluster.hpp"

#include <algorithm>

namespace mv::sim {

using namespace std::chrono_literals;

namespace {
/// All nodes have ended by then: twice the longest silence and the patience of joining.
constexpr Nanos kLimit = 300s;
/// For each back-up, in chains, or with a window smaller than most messages: the inputs of all parts with one back-up go to it one at a time, each with several
/// tries, and are acknowledged along the whole chain.
constexpr Nanos kLimitOfSlow = 1200s;
constexpr size_t kSmallWindow = 4096;
/// Where only their comparison shows that copies differ.
constexpr Nanos kCompareEvery = 20ms;
/// The larger one holds. The longest of some thousand healthy runs took 380'000 steps with up to 9 nodes, and 1'500'000 with 200.
constexpr uint64_t kMostSteps = 3'000'000, kMostStepsOfNode = 100'000;
constexpr Nanos kHeartbeat = 5s, kHeartbeatOfLossy = 6s;
/// In every third run, a stranger talks to this many of the nodes.
constexpr uint64_t kStrangers = 0x7374'7261'6e67'6572;
constexpr size_t kMostNodesOfStranger = 9;
constexpr uint64_t kMachine = 0x6a6f'7572'6e61'6c73, kOfEtcd = 0x6b65'6570'6572'2121;
}  // namespace

SimCluster::SimCluster(const Scenario& scenario, bool verbose)
    : plan_(scenario),
      verbose_(verbose),
      random_(Random::mix(scenario.seed)),
      network_(timeline_, random_.fork(), plan_.conditions),
      machine_(timeline_, network_, Random(Random::mix(scenario.seed ^ kMachine)), [this](Peer peer) { return node(peer).member.get(); }),
      etcd_(timeline_, network_, Random(Random::mix(scenario.seed ^ kOfEtcd))),
      stranger_(timeline_, network_, Random(Random::mix(scenario.seed ^ kStrangers)), std::min<size_t>(plan_.nodes.size(), kMostNodesOfStranger)) {
  network_.verbose = verbose;
  const size_t lives = plan_.lives();
  for (const TablePlan& table : plan_.tables)
    ledgers_.push_back(std::make_unique<Ledger>(timeline_, table, plan_.parts(), lives));
  for (const auto& ledger : ledgers_) ledger->compares_bits = !plan_.out_of_step && !ledger->plan().sets_any_time;
  clean_.resize(lives);
  for (size_t place = 0; place < plan_.nodes.size(); ++place)
    add_node(place, (plan_.nodes[place].role & MV_ROLE_WORKER) != 0 ? next_life_++ : SIZE_MAX, plan_.nodes[place].rank,
             false);
  waiting_for_ready_ = nodes_.size();
}

// ---- starting nodes

const NodePlan& SimCluster::plan_of(size_t place) const {
  static const NodePlan newcomer = [] {
    NodePlan plan;
    plan.role = MV_ROLE_SERVER;
    return plan;
  }();
  if (place >= plan_.first_newcomer()) return plan_.newcomers[place - plan_.first_newcomer()];
  return place < plan_.nodes.size() ? plan_.nodes[place] : newcomer;
}

void SimCluster::add_node(size_t place, size_t life, int64_t rank, bool again) {
  auto node = std::make_unique<Node>();
  const NodePlan& plan = plan_of(place);
  node->place = place;
  node->life = life;
  node->steps = plan.steps;
  node->name = fmt::format("node {}{}", place, again ? " (again)" : "");
  node->self.peer = random_.next() | 1;
  node->self.rank = rank;
  node->self.role = plan.role;
  node->self.nodes = static_cast<uint32_t>(plan_.nodes.size());
  node->self.sync = plan_.sync;
  node->self.replicas = plan_.replicas;
  if (plan_.vacancies > 0) node->self.max_servers = static_cast<uint32_t>(plan_.parts());
  if (plan_.elastic) node->self.max_workers = static_cast<uint32_t>(plan_.worker_places());
  node->self.is_master = place == 0 && !again;
  node->self.master = "sim:0";
  for (size_t other = 1; again && other < plan_.nodes.size(); ++other) node->self.master += fmt::format(",sim:{}", other);
  node->again = again;
  node->self.address = again ? fmt::format("sim:{}.{}", place, nodes_.size()) : fmt::format("sim:{}", place);
  node->self.host = "sim";
  node->self.pid = static_cast<uint32_t>(1000 + nodes_.size());
  node->self.heartbeat_timeout = plan_.conditions.lossy ? kHeartbeatOfLossy : kHeartbeat;
  node->link = std::make_unique<SimLink>(network_, node->self.peer);
  Node* raw = node.get();
  nodes_.push_back(std::move(node));
  timeline_.after(again ? Nanos(0) : plan.start, [this, raw] { start(*raw); });
}

void SimCluster::start(Node& node) {
  if (node.killed) return;
  rpc::ClientOptions options;
  options.probe_after = plan_.probe_after;
  options.window_bytes = plan_.window_bytes;
  engine::Member::Events events;
  events.on_ready = [this, &node](const cluster::View& view) { on_ready(node, view); };
  events.on_failed = [this, &node](const base::Status& why) { on_failed(node, why); };
  events.on_change = [] {};
  events.on_drain = [this, &node] {
    static const FaultPlan by_the_master{};  // and nobody takes its place
    node.member->drain().begin([this, &node](const base::Status& status) { drained(node, by_the_master, status); });
    touch(node);
  };
  node.member = std::make_unique<engine::Member>(timeline_, *node.link, node.self, options, std::move(events));
  if (plan_.one_machine) {
    node.memory = std::make_unique<SimHostMemory>(machine_, node.self.peer);
    node.member->parts().use(*node.memory);
  }
  if (plan_.etcd) {
    node.keeper = std::make_unique<SimEtcd::Client>(etcd_, node.self.peer);
    node.member->cluster().use_keeper(*node.keeper);
  }
  if (node.life != SIZE_MAX)
    node.script = std::make_shared<Script>(static_cast<Surroundings&>(*this), *node.member, random_.fork(), node.steps,
                                           plan_of(node.place).slowness, node.life,
                                           fmt::format("{} (life {})", node.name, node.life));
  network_.add(node.self.peer, node.name, node.self.address, *node.member, [this, &node] { touch(node); });
  for (const Isolation& isolation : isolations_)
    if (isolation.until > timeline_.now()) cut(isolation.peer, node.self.peer, isolation.until - timeline_.now(), isolation.way, false);
  node.member->start();
  touch(node);
}

void SimCluster::Node::stop() {
  keeper.reset();  // before those who wait for it
  member.reset();
  script.reset();
}

SimCluster::Node& SimCluster::node(Peer peer) {
  return **std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& node) { return node->self.peer == peer; });
}

void SimCluster::on_ready(Node& node, const cluster::View& view) {
  node.ready = true;
  node.rank = view.find(node.self.peer)->rank;
  const int64_t wanted = node.self.rank;
  if (wanted >= 0 && node.rank != wanted)
    timeline_.violated(fmt::format("{} has rank {}, not {}", node.name, node.rank, wanted));
  if (node.killed) return;
  if (plan_.replicas > 0 || plan_.keeps_gets()) compare_later(node);
  if (node.script != nullptr)
    node.script->start();
  else
    serve_on(node);
  if (waiting_for_ready_ > 0 && --waiting_for_ready_ == 0) schedule_faults(false);
}

void SimCluster::on_failed(Node& node, const base::Status& why) {
  node.failed = true;
  // The loss of its predecessor is not known yet, or there is no place.
  const bool too_early = node.again && (node.script == nullptr || node.place >= plan_.nodes.size()) && why.code() == MV_EDISAGREE;
  // A network that loses messages may lose each try of a Join until the master's patience with a stranger is over.
  const bool unlucky = plan_.conditions.lossy && node.member->cluster().is_joining() && why.text().find("it closed the connection") != std::string::npos;
  // It was to leave before it was ready, and has not heard that it may. Or the master has left.
  const Node* const master = this->master();
  const cluster::Member* const known = master != nullptr ? master->member->cluster().view().find(node.self.peer) : nullptr;
  const bool left = master != nullptr && node.member->cluster().view().find(node.self.peer) != nullptr && (known == nullptr || known->drained);
  if (!anyone_gone_ && gone_.empty() && !cluster_dissolves() && !too_early && !unlucky && !left && !names_a_leaver(why.text()))
    timeline_.violated(fmt::format("{} could not join the cluster: {}", node.name, why.text()));
  const bool late = node.life != SIZE_MAX && node.life >= plan_.workers();
  if (late && why.code() == MV_ETIMEOUT && !anyone_gone_ && !servers_may_fail_ && !cluster_dissolves())
    timeline_.violated(fmt::format("{} had to wait although all servers have joined: {}", node.name, why.text()));
  anyone_gone_ = anyone_gone_ || !too_early;  // it ends at once, and others may lose it
  if (node.life != SIZE_MAX) lose_life(node.life);
  if (waiting_for_ready_ > 0 && --waiting_for_ready_ == 0) schedule_faults(false);
  end(node);
}

// ---- driving a node

/// Like an idle loop: flushes, and sets the timer.
void SimCluster::touch(Node& node) {
  if (std::exchange(node.flush_asked, true)) return;
  later(node.self.peer, Nanos(random_.between(0, 20'000)), [this, &node] {
    node.flush_asked = false;
    look_after(node);
  });
}

void SimCluster::later(Peer self, Nanos span, std::function<void()> work) {
  timeline_.after(span,
                  [this, self, work = std::move(work)]() mutable { network_.when_running(self, std::move(work)); });
}

void SimCluster::look_after(Node& node) {
  if (node.member == nullptr) return;
  node.member->flush();
  if ((plan_.replicas > 0 || plan_.has_drains()) && node.ready) check_primaries(node);
  arm(node);
  if (node.finished && node.member->cluster().all_workers_gone()) end(node);
}

void SimCluster::compare_later(Node& node) {
  later(node.self.peer, kCompareEvery, [this, &node] {
    if (node.member == nullptr) return;
    node.member->parts().compare();
    touch(node);
    compare_later(node);
  });
}

void SimCluster::arm(Node& node) {
  const Nanos next = node.member->next_deadline();
  if (next == node.armed) return;
  node.armed = next;
  if (next == base::kNever) return;
  later(node.self.peer, next - timeline_.now(), [this, &node, next] {
    if (node.member == nullptr || node.armed != next) return;
    node.armed = base::kNever;
    node.member->tick();
    touch(node);
  });
}

// ---- ending nodes

void SimCluster::left(Peer self, bool clean) {
  Node& node = this->node(self);
  clean_[node.life] = clean;
  serve_on(node);
}

/// Servers, and the master, stay until the last worker has finished.
void SimCluster::serve_on(Node& node) {
  if ((node.self.role & MV_ROLE_SERVER) == 0 && !node.member->cluster().is_master()) return end(node);
  node.finished = true;
  touch(node);
  if (plan_.workers_drain && node.script != nullptr && (node.self.role & MV_ROLE_SERVER) != 0)
    later(node.self.peer, Nanos(random_.between(0, 300'000'000)), [this, &node] { drain(FaultPlan{.side = {node.place}}); });
}

void SimCluster::end(Node& node) {
  if (std::exchange(node.ending, true)) return;
  later(node.self.peer, Nanos(random_.between(0, 2'000'000)), [this, &node] {
    if (node.member == nullptr) return;
    node.member->parts().read_journals();
    check_parts(node);
    network_.remove(node.self.peer, true, true);
    node.stop();
  });
}

void SimCluster::check_parts(const Node& node) {
  if (node.member->parts().differing() > 0) timeline_.violated(fmt::format("{} keeps a copy that differs from its server's tables", node.name));
  if ((node.self.role & MV_ROLE_SERVER) == 0 || !node.ready || node.member->drain().has_sealed() || (node.dropped && (plan_.replicas > 0 || plan_.has_drains()))) return;
  if (!node.member->cluster().why_cut_off().ok()) return;  // the others may have gone on without it
  const cluster::View& view = node.member->cluster().view();
  const auto served = node.member->parts().served();
  for (const cluster::Member* member : view.servers()) {
    const bool own = member->peer == node.self.peer;
    const table::Server* const tables = node.member->parts().tables_of(member->peer);
    if (tables == nullptr || (replaced_server_ && view.serving(*member) == base::kNobody)) continue;
    const auto server = static_cast<size_t>(view.server_id(member->peer));
    for (const auto& ledger : ledgers_) {
      const auto number = ledger->number(server);
      const auto shard = number.has_value() ? tables->shard(*number) : nullptr;
      const bool has_values = std::ranges::find(served, tables) != served.end() || ledger->plan().spec.has_backups();
      if (shard != nullptr && has_values) ledger->check_part(fmt::format("{}, {} server {},", node.name, own ? "as" : "copy of", server), server, *shard, clean_);
    }
  }
}

/// A part has at most one primary in an epoch, also when the old one does not know yet that it was replaced.
void SimCluster::check_primaries(const Node& node) {
  const cluster::View& view = node.member->cluster().view();
  const auto served = node.member->parts().served();
  for (const cluster::Member* server : view.servers()) {
    const table::Server* const tables = node.member->parts().tables_of(server->peer);
    if (tables == nullptr || std::find(served.begin(), served.end(), tables) == served.end()) continue;
    const Peer first = primaries_.try_emplace({server->rank, view.epoch}, node.self.peer).first->second;
    if (first == node.self.peer) continue;
    timeline_.violated(fmt::format("server {} has two primaries in epoch {}: {} and {}", view.server_id(server->peer), view.epoch,
                                   this->node(first).name, node.name));
  }
}

// ---- faults

void SimCluster::schedule_faults(bool early) {
  if (!early) etcd_.begin_faults();
  for (const FaultPlan& fault : plan_.faults)
    if (fault.early == early) timeline_.after(fault.when, [this, &fault] { inject(fault); });
}

void SimCluster::inject(const FaultPlan& fault) {
  if (fault.of_master) {
    const Node* const master = this->master();
    if (master == nullptr) return;
    FaultPlan of_it = fault;
    of_it.of_master = false;
    of_it.side.front() = master->place;
    return inject(of_it);
  }
  if (fault.fault == Fault::kKill || fault.fault == Fault::kKillQuietly || fault.fault == Fault::kAbort) return kill(fault.side.front(), fault);
  if (fault.fault == Fault::kPause || fault.fault == Fault::kLongPause || fault.fault == Fault::kIsolate) return pause(fault);
  if (fault.fault == Fault::kDrain) return drain(fault);
  if (fault.fault == Fault::kCome) return come(fault);
  if (fault.fault == Fault::kResize) return resize(fault);
  part(fault);
}

/// Another server or worker comes, and gets a vacant place if there is one.
void SimCluster::come(const FaultPlan& fault) {
  if (fault.side.front() >= plan_.first_newcomer()) return come_to_work(fault.side.front());
  if (cluster_dissolves()) return;
  add_node(fault.side.front(), SIZE_MAX, -1, true);
  replaced_server_ = true;
}

/// A worker may also take the place of one that has finished. Once all have, the cluster is at its end. Where the others have barriers of their own,
/// it can't make the same calls as they do on a table in sync mode.
void SimCluster::come_to_work(size_t place) {
  if (!plan_.sync && plan_.has_consistency(shard::Consistency::kSync)) return;
  const auto works = [](const auto& node) { return node->script != nullptr && node->ready && !node->killed && !node->script->leaving(); };
  if (!std::any_of(nodes_.begin(), nodes_.end(), works)) return;
  for (const auto& ledger : ledgers_) ledger->comes_late(next_life_);
  add_node(place, next_life_++, -1, true);
  if (!plan_.sync) keep_own_business(nodes_.back()->steps);
}

/// The master wants fewer servers, or more, which come by themselves if at all.
void SimCluster::resize(const FaultPlan& fault) {
  const Node* const asked = master();
  if (asked == nullptr || asked->ending || cluster_dissolves()) return;
  if (!std::all_of(nodes_.begin(), nodes_.end(), [this](const auto& other) { return is_noticed(*other); })) return;  // as for drain()
  asked->member->cluster().resize(fault.servers, std::make_shared<rpc::Ignored>());
  touch(node(asked->self.peer));
}

/// A server is told to end. It goes on if it can't hand its tables over.
void SimCluster::drain(const FaultPlan& fault) {
  const auto newest = std::find_if(nodes_.rbegin(), nodes_.rend(), [&](const auto& node) { return node->place == fault.side.front(); });
  if (newest == nodes_.rend()) return;
  Node& node = **newest;
  if (node.member == nullptr || !node.ready || node.ending || node.killed || node.dropped) return;
  // With the end of a back-up, nobody may have a copy of the part of a server that is dead already.
  if (!std::all_of(nodes_.begin(), nodes_.end(), [this](const auto& other) { return is_noticed(*other); })) return;
  node.member->drain().begin([this, &node, fault](const base::Status& status) { drained(node, fault, status); });
  touch(node);
}

void SimCluster::drained(Node& node, const FaultPlan& fault, const base::Status& status) {
  if (verbose_) fmt::print("{} {}\n", node.name, status.ok() ? "has handed its tables over" : "goes on: " + status.text());
  if (!status.ok() || !node.member->drain().is_over() || node.ending || node.killed) return;
  node.drained = true;
  if (node.rank < 0) node.rank = node.member->cluster().view().find(node.self.peer)->rank;  // it was to leave before it was ready
  replaced_server_ = true;
  end(node);
  if (fault.restart == base::kNever || cluster_dissolves()) return;
  ++restarts_open_;
  timeline_.after(fault.restart, [this, place = node.place, rank = node.rank] { restart(place, rank); });
}

void SimCluster::cut(Peer a, Peer b, Nanos span, Way way, bool breaks) {
  if (way == Way::kBoth) return network_.part(a, b, span, breaks);
  way == Way::kFrom ? network_.mute(a, b, span) : network_.mute(b, a, span);
}

/// The network of its host is broken, so it does not reach an etcd either.
void SimCluster::isolate(const Node& node, const FaultPlan& fault) {
  const bool breaks = random_.chance(0.5);
  for (const auto& other : nodes_)
    if (other.get() != &node) cut(node.self.peer, other->self.peer, fault.span, fault.way, breaks);
  etcd_.cut_off(node.self.peer, fault.span);
  isolations_.push_back({node.self.peer, fault.way, timeline_.now() + fault.span});
}

/// Stops a process, or cuts it off: for longer than the others' patience, it is lost in both cases.
void SimCluster::pause(const FaultPlan& fault) {
  for (const auto& node : nodes_) {
    if (node->place != fault.side.front() || node->member == nullptr) continue;
    fault.fault == Fault::kIsolate ? isolate(*node, fault) : network_.pause(node->self.peer, fault.span);
    if (fault.fault == Fault::kPause) continue;
    node->dropped = true;
    if (node->script != nullptr)
      for (size_t table = node->script->next_table(); table < ledgers_.size(); ++table) ledgers_[table]->initial_may_be_lost();
    const bool unnoticed = is_replaceable(*node) && node->script == nullptr;
    gone(*node);
    anyone_gone_ = anyone_gone_ || !unnoticed;  // it finds that all others have dropped it
  }
}

void SimCluster::part(const FaultPlan& fault) {
  const std::set<size_t> side(fault.side.begin(), fault.side.end());
  for (const auto& a : nodes_)
    for (const auto& b : nodes_) {
      if (!side.contains(a->place) || side.contains(b->place) || (fault.other != SIZE_MAX && b->place != fault.other))
        continue;
      cut(a->self.peer, b->self.peer, fault.span, fault.way, fault.fault == Fault::kPart);
      if (fault.fault != Fault::kLongPart) continue;
      if (plan_.replicas > 0) a->dropped = b->dropped = true;  // the master decides which of the two is lost, and that one finds all others gone
      gone(*a);
      gone(*b);
      anyone_gone_ =
          anyone_gone_ || plan_.replicas > 0 || is_present_master(*a) || is_present_master(*b);  // if the master loses a node, all others drop it
    }
}

/// Whether another server goes on with the tables of this one, so that nothing fails.
bool SimCluster::is_replaceable(const Node& node) const {
  const auto runs = [&node](const auto& other) {
    // A server that is to end may take the only copies with it, or be about to pass its parts to this one.
    if (other.get() != &node && other->member != nullptr && !other->member->drain().waits_for().empty()) return false;
    return other->ready && (!other->ending || other->drained) && (!other->killed || other->script == nullptr);
  };
  if (plan_.replicas == 0 || !std::all_of(nodes_.begin(), nodes_.end(), runs)) return false;
  const Node* const master = this->master();
  return master != nullptr && leaves_quorum(node, *master) && has_copies(node);
}

/// The newest master that lives.
const SimCluster::Node* SimCluster::master() const {
  const Node* newest = nullptr;
  for (const auto& node : nodes_) {
    if (node->member == nullptr || node->killed || node->dropped || !node->ready) continue;
    const cluster::Cluster& cluster = node->member->cluster();
    if (!cluster.is_master() || !cluster.why_cut_off().ok()) continue;
    if (newest == nullptr || newest->member->cluster().view().epoch < cluster.view().epoch) newest = node.get();
  }
  return newest;
}

/// Whether the others can decide that this one is lost, by the newest decided view.
bool SimCluster::leaves_quorum(const Node& node, const Node& master) const {
  if (plan_.etcd) return true;
  const cluster::View& view = master.member->cluster().view();
  std::set<Peer> voters;
  for (const auto& other : nodes_)
    if (other.get() != &node && other->member != nullptr && !other->killed && !other->dropped && !other->drained) voters.insert(other->self.peer);
  return cluster::QuorumKeeper::is_quorum(view, voters);
}

/// Whether another process that lives serves or keeps an equal copy of each part of this one, as far as the master knows.
bool SimCluster::has_copies(const Node& node) const {
  const Node* const master = this->master();
  if (master == nullptr) return false;
  const cluster::View& view = master->member->cluster().view();
  const auto lives = [&](Peer peer) {
    return peer != node.self.peer && std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& other) {
      return other->self.peer == peer && !other->killed && !other->dropped && other->member != nullptr &&
             !other->member->drain().has_sealed();
    });
  };
  const auto parts = view.servers();
  return std::all_of(parts.begin(), parts.end(), [&](const cluster::Member* part) { return std::ranges::any_of(view.chain_of(*part), lives); });
}

/// Whether the master knows of the loss of this one, if it is a server that is lost.
bool SimCluster::is_noticed(const Node& node) const {
  const Node* const master = this->master();
  if ((node.self.role & MV_ROLE_SERVER) == 0 || (!node.killed && !node.dropped) || master == nullptr) return true;
  const cluster::Member* const member = master->member->cluster().view().find(node.self.peer);
  return member == nullptr || member->is_out;
}

void SimCluster::gone(const Node& node) {
  // With its master, a cluster without a quorum loses those who could name stand-ins.
  const bool is_server = (node.self.role & MV_ROLE_SERVER) != 0 || is_present_master(node), replaced = is_server && is_replaceable(node);
  if (replaced && node.script == nullptr) {
    replaced_server_ = true;
    unnoticed_.insert(node.rank);
    return;
  }
  servers_may_fail_ = servers_may_fail_ || (is_server && !replaced);
  // Without a majority, nobody decides any more, and the master ends.
  const Node* const master = this->master();
  if (plan_.replicas > 0 && (master == nullptr || !leaves_quorum(node, *master))) anyone_gone_ = servers_may_fail_ = true;
  if (servers_may_fail_) gone_.merge(unnoticed_);  // with the parts of this one, theirs may be lost
  replaced_server_ = replaced_server_ || replaced;
  changes_may_fail_ = changes_may_fail_ || servers_may_fail_ || plan_.has_consistency(shard::Consistency::kSync);
  if (node.life != SIZE_MAX) lose_life(node.life);
  if (node.rank >= 0)
    gone_.insert(node.rank);
  else
    anyone_gone_ = true;
}

void SimCluster::lose_life(size_t life) {
  gone_lives_.insert(life);
  for (const auto& ledger : ledgers_) ledger->lost(life);
}

bool SimCluster::is_present_master(const Node& node) const { return node.member != nullptr && node.member->cluster().is_master(); }

void SimCluster::kill(size_t place, const FaultPlan& fault) {
  const auto alive =
      std::find_if(nodes_.rbegin(), nodes_.rend(), [&](const auto& node) { return node->place == place; });
  if (alive == nodes_.rend()) return;  // a newcomer that has not come
  Node& node = **alive;
  const bool starts_later = node.member == nullptr && !node.ending;
  if (node.killed || node.drained || (node.member == nullptr && !starts_later)) return;
  const bool part_lives = ((node.self.role & MV_ROLE_SERVER) == 0 && !is_present_master(node)) || is_replaceable(node);
  const bool server_returns = fault.restart != base::kNever && node.script == nullptr && is_replaceable(node) && !cluster_dissolves();
  node.killed = true;
  gone(node);
  if (!node.ready && waiting_for_ready_ > 0 && --waiting_for_ready_ == 0) schedule_faults(false);
  if (starts_later) return;
  const bool comes_back = fault.restart != base::kNever && node.script != nullptr && part_lives && !cluster_dissolves() &&
                          std::all_of(nodes_.begin(), nodes_.end(), [](const auto& n) { return n->script == nullptr || n->script->has_tables(); });
  if (node.script != nullptr)
    for (size_t table = node.script->next_table(); table < ledgers_.size(); ++table)
      ledgers_[table]->initial_may_be_lost();
  if (fault.fault == Fault::kAbort) node.member->abort("it found a mistake in its data", [] {});
  network_.remove(node.self.peer, fault.fault == Fault::kAbort, fault.fault != Fault::kKillQuietly);
  node.stop();
  if (!comes_back && !server_returns) return;
  ++restarts_open_;
  timeline_.after(fault.restart, [this, place, rank = node.rank] { restart(place, rank); });
}

void SimCluster::restart(size_t place, int64_t rank) {
  --restarts_open_;
  if (cluster_dissolves()) return;
  if ((plan_of(place).role & MV_ROLE_WORKER) == 0) return add_node(place, SIZE_MAX, rank, true);
  for (const auto& ledger : ledgers_) ledger->comes_late(next_life_);
  add_node(place, next_life_++, rank, true);
  keep_own_business(nodes_.back()->steps);
}

/// A late worker has no part in the others' barriers. While they wait there for its end, it must not wait for their clocks, so it ticks no
/// more often than its tables allow. So it is with several such tables: beginning with other clocks, it does not tick them in the others' order.
void SimCluster::keep_own_business(std::vector<Step>& steps) const {
  const auto is_barrier = [](const Step& step) { return step.call == Call::kBarrier; };
  const bool barriers = std::any_of(plan_.nodes.begin(), plan_.nodes.end(), [&](const NodePlan& node) {
    return std::any_of(node.steps.begin(), node.steps.end(), is_barrier);
  });
  const auto stale = std::count_if(plan_.tables.begin(), plan_.tables.end(), [](const TablePlan& table) { return table.spec.staleness >= 0; });
  std::vector<int64_t> ticks(plan_.tables.size());
  std::erase_if(steps, [&](const Step& step) {
    if (is_barrier(step) || step.call == Call::kSetUpdater) return true;
    return step.call == Call::kClock && (barriers || stale > 1) && ++ticks[step.table] > plan_.tables[step.table].spec.staleness;
  });
}

bool SimCluster::cluster_dissolves() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const auto& n) { return (n->ending && !n->drained) || (n->script != nullptr && n->script->leaving()); });
}

/// A worker that replaces a lost one may find that the others, and with them the servers, have finished meanwhile.
bool SimCluster::came_too_late(size_t life) const { return life >= plan_.workers() && cluster_dissolves(); }

size_t SimCluster::life_at(int64_t rank) const {
  const auto newest =
      std::find_if(nodes_.rbegin(), nodes_.rend(), [&](const auto& node) { return node->rank == rank; });
  return newest != nodes_.rend() ? (*newest)->life : SIZE_MAX;
}

bool SimCluster::names_a_leaver(const std::string& text) const {
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
    const bool has_left = node->drained || (node->member != nullptr && node->member->drain().has_sealed());
    return has_left && text.find(fmt::format("(rank {},", node->rank)) != std::string::npos;
  });
}

bool SimCluster::names_a_lost_process(const std::string& text) const {
  if (anyone_gone_) return true;
  // The process that took its tables over may be lost, perhaps while the leaver still waits for the others' goodbyes.
  if (servers_may_fail_ && names_a_leaver(text)) return true;
  return std::any_of(gone_.begin(), gone_.end(),
                     [&](int64_t rank) { return text.find(fmt::format("(rank {},", rank)) != std::string::npos; });
}

// ---- barriers

/// Every worker that took part all the time was in a barrier when this one let its worker pass: in the first barrier that was not over when
/// this worker came, or in a later one. Everything it had begun before is applied.
void SimCluster::barrier_passed(Peer self, Nanos entered) {
  if (anyone_gone_ || changes_may_fail()) return;
  for (const auto& other : nodes_) {
    const Script* script = other->script.get();
    if (other->self.peer == self || script == nullptr || !script->takes_part() || script->started_at() >= entered)
      continue;
    if (gone_.contains(other->rank)) continue;
    const auto& visits = script->visits();
    const auto visit =
        std::find_if(visits.begin(), visits.end(), [&](const BarrierVisit& v) { return v.over >= entered; });
    if (visit == visits.end())
      return timeline_.violated(
          fmt::format("{} passed a barrier that {} has not entered", node(self).name, other->name));
    for (size_t table = 0; table < visit->begun.size(); ++table)
      ledgers_[table]->settled(script->life(), visit->begun[table]);
  }
}

// ---- all of it

bool SimCluster::all_ended() const {
  return restarts_open_ == 0 && std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
           return node->killed || (node->ending && node->member == nullptr);
         });
}

void SimCluster::check_end() {
  if (!quarantine_.is_intact()) timeline_.violated("memory that was given back to its caller was written to");
  if (!all_ended()) timeline_.violated("some nodes have not ended:" + unfinished());
}

/// What the nodes that have not ended do.
std::string SimCluster::unfinished() const {
  std::string who;
  for (const auto& node : nodes_) {
    if (node->killed || (node->ending && node->member == nullptr)) continue;
    who += fmt::format("\n  {} {}", node->name,
                       node->finished            ? "serves on"
                       : node->script != nullptr ? node->script->state()
                                                 : "is not ready");
  }
  return who;
}

Outcome SimCluster::run() {
  schedule_faults(true);
  if (Random::mix(plan_.seed ^ kStrangers) % 3 == 0) timeline_.after(Nanos(0), [this] { stranger_.start(); });
  const bool is_slow = plan_.replicas > 0 && plan_.conditions.lossy && (plan_.window_bytes <= kSmallWindow || plan_.replicas > 1);
  const Nanos limit = is_slow ? plan_.replicas * kLimitOfSlow : kLimit;
  const uint64_t most_steps = std::max(kMostSteps, kMostStepsOfNode * plan_.nodes.size());
  const auto goes_on = [&] { return timeline_.violation().empty() && !all_ended() && timeline_.steps() < most_steps && timeline_.step(limit); };
  // A cluster whose nodes do the same after another kLimit is stuck.
  Nanos looked_at = timeline_.now();
  std::string before;
  while (goes_on()) {
    if (timeline_.now() < looked_at + kLimit) continue;
    looked_at = timeline_.now();
    std::string now = unfinished();
    if (now == before) break;
    before = std::move(now);
  }
  check_end();
  return {timeline_.violation(), timeline_.hash(), timeline_.steps(), timeline_.now()};
}

}  // namespace mv::sim
