#include "scenario.hpp"

#include <algorithm>

namespace mv::sim {

using namespace std::chrono_literals;

namespace {

constexpr Nanos kMillisecond = 1ms;
constexpr size_t kMany = 20;  ///< from this many nodes on, each does little
constexpr uint64_t kVariety = 0x7661726965747921;
constexpr uint64_t kChains = 0x6368'6169'6e73'2121;
constexpr uint64_t kNewcomers = 0x6e65'7763'6f6d'6572;
constexpr uint64_t kKeepsGets = 0x6b65'6570'7367'6574;
constexpr uint64_t kOneMachine = 0x6d61'6368'696e'6500, kNoBackups = 0x6e6f'6261'636b'7570;
constexpr uint64_t kMasterLeaves = 0x6d61'7374'6572'6c76, kCuts = 0x6f6e'6520'7761'7921, kEtcd = 0x6574'6364'6574'6364, kWorkersDrain = 0x776f'726b'6572'7364;

void choose_roles(Scenario& plan, Random& random) {
  const size_t nodes = plan.nodes.size();
  const size_t style = random.below(3);
  const size_t servers = nodes > kMany ? 1 + random.below(8) : 1 + random.below(nodes - 1);
  for (NodePlan& node : plan.nodes)
    node.role = style == 2 && nodes <= kMany ? static_cast<int>(1 + random.below(3)) : MV_ROLE_WORKER;
  if (style == 0 && nodes <= kMany)
    for (NodePlan& node : plan.nodes) node.role = MV_ROLE_ALL;
  if (style == 1 || nodes > kMany)
    for (size_t i = 0; i < servers; ++i) plan.nodes[random.below(nodes)].role = MV_ROLE_SERVER;
  if (plan.servers() == 0) plan.nodes[random.below(nodes)].role = MV_ROLE_ALL;
  if (plan.workers() == 0) plan.nodes[random.below(nodes)].role = MV_ROLE_ALL;
}

void choose_start(Scenario& plan, Random& random) {
  const bool explicit_ranks = random.chance(0.5);
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    if (explicit_ranks || i == 0) plan.nodes[i].rank = static_cast<int64_t>(i);
    plan.nodes[i].start = kMillisecond * random.between(0, 300);
  }
}

void choose_network(Scenario& plan, Random& random) {
  Conditions& conditions = plan.conditions;
  conditions.latency = Nanos(random.between(20'000, 500'000));
  conditions.jitter = Nanos(random.between(0, 3'000'000));
  conditions.staged = random.chance(0.8) ? 0.75 : 0;
  conditions.lossy = random.chance(0.4);
  if (!conditions.lossy) return;
  conditions.drop = random.chance(0.7) ? 0.01 * static_cast<double>(random.between(1, 20)) : 0;
  conditions.duplicate = random.chance(0.6) ? 0.01 * static_cast<double>(random.between(1, 20)) : 0;
  conditions.late = random.chance(0.6) ? 0.01 * static_cast<double>(random.between(1, 10)) : 0;
  plan.probe_after = kMillisecond * random.between(50, 200);
}

/// Counters come first in each stripe (ledger.hpp): the table has room for them, and for some elements to count.
TablePlan choose_table(const Scenario& plan, Random& random, size_t number, bool large) {
  TablePlan table;
  shard::Spec& spec = table.spec;
  const uint64_t counters = plan.lives(), servers = plan.parts();
  spec.name = fmt::format("t{}", number);
  spec.dtype = random.chance(0.5) ? MV_F64 : MV_F32;
  table.fractional = plan.sync && random.chance(0.5);
  table.initial = random.chance(0.5) ? static_cast<int>(random.between(1, 9)) : 0;
  if (large && random.chance(0.3)) {  // rows longer than a stripe
    spec.kind = MV_MATRIX;
    spec.rows = servers * (1 + random.below(2));
    spec.cols = shard::kStripeBytes / spec.element_bytes() + 100 + random.below(60'000);
  } else if (large) {
    spec.kind = MV_MATRIX;
    spec.cols = counters + random.below(200);
    const uint64_t stripe_rows = shard::kStripeBytes / (spec.cols * spec.element_bytes());
    spec.rows = servers * (stripe_rows + 1 + random.below(stripe_rows));
  } else if (random.chance(0.3)) {
    spec.rows = servers * (counters + 1 + random.below(random.chance(0.2) ? 2000 : 30));
  } else {
    spec.kind = MV_MATRIX;
    spec.cols = counters + random.below(random.chance(0.3) ? 300 : 8);
    spec.rows = 1 + random.below(random.chance(0.3) ? 40 : 3 * servers);  // perhaps fewer than servers
  }
  return table;
}

bool has_long_rows(const TablePlan& table) { return table.spec.row_bytes() > shard::kStripeBytes; }

Step choose_add(const Scenario& plan, Random& random) {
  Step step{Call::kAdd, random.below(plan.tables.size())};
  if (random.chance(0.5) && !has_long_rows(plan.tables[step.table])) step.call = Call::kAddRows;
  return step;
}

Step choose_reading(const Scenario& plan, Random& random, bool peek) {
  Step step{peek ? Call::kPeek : Call::kGet, random.below(plan.tables.size())};
  if (random.chance(0.4) && !has_long_rows(plan.tables[step.table]))
    step.call = peek ? Call::kPeekRows : Call::kGetRows;
  return step;
}

/// Async mode: every worker makes independent calls between common barriers.
void write_async_scripts(Scenario& plan, Random& random, size_t length) {
  const size_t barriers = random.below(4);
  for (NodePlan& node : plan.nodes)
    for (size_t part = 0; part <= barriers; ++part) {
      for (size_t i = random.below(length / (barriers + 1) + 1) + 1; i > 0; --i) {
        const size_t kind = random.pick({6, 2, 1, 0.7, 0.3});
        if (kind == 0) node.steps.push_back(choose_add(plan, random));
        if (kind == 1 || kind == 2) node.steps.push_back(choose_reading(plan, random, kind == 2));
        if (kind == 3) node.steps.push_back({Call::kCatchUp, 0});
        if (kind == 4) node.steps.push_back({Call::kOpen, random.below(plan.tables.size())});
      }
      if (part < barriers) node.steps.push_back({Call::kBarrier, 0});
    }
}

/// Sync mode: all make the same adds and gets, with rows of their own choice; peeks are unrestricted. Some stop early.
void write_sync_scripts(Scenario& plan, Random& random, size_t length) {
  std::vector<Step> common;
  while (common.size() < length) {
    const size_t kind = random.pick({5, 3, 0.6, 0.4});
    if (kind == 0) common.push_back(choose_add(plan, random));
    if (kind == 1) common.push_back(choose_reading(plan, random, false));
    if (kind == 2 && !plan.out_of_step) common.push_back({Call::kBarrier, 0});  // otherwise one may wait there for ever
    if (kind == 3) common.push_back({Call::kCatchUp, 0});
  }
  const bool some_stop = random.chance(0.25);
  for (NodePlan& node : plan.nodes) {
    const size_t end = some_stop && random.chance(0.4) ? random.below(common.size()) : common.size();
    for (size_t i = 0; i < end; ++i) {
      Step step = common[i];
      const bool can_choose = !has_long_rows(plan.tables[step.table]) && random.chance(0.3);
      if (can_choose && step.call == Call::kAdd) step.call = Call::kAddRows;
      if (can_choose && step.call == Call::kGet) step.call = Call::kGetRows;
      node.steps.push_back(step);
      if (random.chance(0.1)) node.steps.push_back(choose_reading(plan, random, true));
    }
    if (plan.out_of_step && &node == &plan.nodes.back())
      node.steps.insert(node.steps.begin() + random.between(0, static_cast<int64_t>(node.steps.size())),
                        choose_add(plan, random));
  }
}

void add_partitions(Scenario& plan, Random& random) {
  for (size_t i = 1 + random.below(6); i > 0; --i) {
    FaultPlan fault;
    fault.fault = random.chance(0.7) ? Fault::kPart : Fault::kStall;
    fault.early = random.chance(0.2);
    fault.when = kMillisecond * random.between(0, 800);
    const int64_t longest =
        plan.conditions.lossy ? 1000 : 2500;  // shorter than the heartbeat time-out, including losses after it
    fault.span = kMillisecond * random.between(1, random.chance(0.2) ? longest : 300);
    fault.side.push_back(random.below(plan.nodes.size()));
    if (random.chance(0.5)) {
      fault.other = random.below(plan.nodes.size());
    } else {
      for (size_t node = 0; node < plan.nodes.size(); ++node)
        if (random.chance(0.3)) fault.side.push_back(node);
    }
    plan.faults.push_back(fault);
  }
}

void add_pause(Scenario& plan, Random& random, bool too_long) {
  FaultPlan fault;
  fault.fault = too_long ? Fault::kLongPause : Fault::kPause;
  fault.when = kMillisecond * random.between(0, 600);
  const int64_t longest = plan.conditions.lossy ? 1000 : 2500;
  fault.span = kMillisecond * (too_long ? random.between(8'000, 20'000) : random.between(1, longest));
  fault.side.push_back(random.below(plan.nodes.size()));
  plan.faults.push_back(fault);
}

void add_long_partition(Scenario& plan, Random& random) {
  FaultPlan fault;
  fault.fault = Fault::kLongPart;
  fault.when = kMillisecond * random.between(0, 500);
  fault.span = kMillisecond * random.between(8'000, 20'000);
  fault.side.push_back(random.below(plan.nodes.size()));
  if (random.chance(0.5)) fault.other = random.below(plan.nodes.size());
  plan.faults.push_back(fault);
}

void add_kill(Scenario& plan, Random& random, bool of_worker) {
  std::vector<size_t> candidates;
  for (size_t node = 0; node < plan.nodes.size(); ++node)
    if (!of_worker || (node > 0 && plan.nodes[node].role == MV_ROLE_WORKER)) candidates.push_back(node);
  if (candidates.empty()) return;
  FaultPlan fault;
  fault.fault = random.chance(0.15) ? Fault::kKillQuietly : random.chance(0.3) ? Fault::kAbort : Fault::kKill;
  fault.when = kMillisecond * random.between(0, of_worker ? 200 : 500);
  fault.early = random.chance(0.04);
  fault.side.push_back(candidates[random.below(candidates.size())]);
  if (of_worker && !plan.sync && !fault.early && random.chance(0.8))
    fault.restart = kMillisecond * random.between(1, random.chance(0.3) ? 400 : 60);
  plan.faults.push_back(fault);
}

/// Only servers that the others can do without: the master lives.
void add_end_of_server(Scenario& plan, Random& random, int64_t after) {
  std::vector<size_t> candidates;
  for (size_t node = 1; node < plan.nodes.size(); ++node)
    if ((plan.nodes[node].role & MV_ROLE_SERVER) != 0) candidates.push_back(node);
  if (candidates.empty()) return;
  FaultPlan fault;
  const size_t kind = random.pick({6, 2, 2, 1.5});
  fault.fault = std::vector{Fault::kKill, Fault::kKillQuietly, Fault::kAbort, Fault::kLongPause}[kind];
  fault.when = kMillisecond * (after + random.between(0, random.chance(0.5) ? 100 : 600));
  if (kind == 3) fault.span = kMillisecond * random.between(8'000, 20'000);
  fault.side.push_back(candidates[random.below(candidates.size())]);
  const bool ends_loudly = fault.fault == Fault::kKill || fault.fault == Fault::kAbort;
  const bool may_return = plan.nodes[fault.side.front()].role == MV_ROLE_SERVER || !plan.sync;  // as for workers, see add_kill()
  if (ends_loudly && may_return && random.chance(0.5)) fault.restart = kMillisecond * random.between(5, 400);
  plan.faults.push_back(fault);
}

void choose_faults_with_replicas(Scenario& plan, Random& random) {
  if (random.chance(0.5)) add_partitions(plan, random);
  if (random.chance(0.3)) add_kill(plan, random, true);
  if (random.chance(0.9)) add_end_of_server(plan, random, 0);
  // Another one, perhaps the one that has taken its place, ends when the parts of the first may have new back-ups, or while those get their copies.
  for (int64_t after = 50; random.chance(0.5) && after < 1000; after += 250) add_end_of_server(plan, random, after);
  if (plan.replicas < 2 || plan.faults.empty() || !random.chance(0.7)) return;
  // Two processes of a chain end within some milliseconds.
  const Nanos last = plan.faults.back().when;
  add_end_of_server(plan, random, 0);
  plan.faults.back().when = std::max(Nanos(0), last + Nanos(random.between(-5'000'000, 5'000'000)));
}

/// The present master ends, perhaps the one after it, too.
void add_end_of_master(Scenario& plan, Random& random, int64_t after) {
  FaultPlan fault;
  fault.of_master = true;
  const size_t kind = random.pick({6, 2, 1.5, 1.5});
  fault.fault = std::vector{Fault::kKill, Fault::kKillQuietly, Fault::kAbort, Fault::kLongPause}[kind];
  fault.when = kMillisecond * (after + random.between(0, random.chance(0.5) ? 100 : 600));
  if (kind == 3) fault.span = kMillisecond * random.between(8'000, 20'000);
  fault.side.push_back(0);
  plan.faults.push_back(fault);
}

void choose_faults_with_masters(Scenario& plan, Random& random) {
  if (random.chance(0.4)) add_partitions(plan, random);
  if (random.chance(0.2)) add_kill(plan, random, true);
  if (random.chance(0.3)) add_end_of_server(plan, random, 0);
  add_end_of_master(plan, random, 0);
  for (int64_t after = 200; random.chance(0.4) && after < 1200; after += 300)
    random.chance(0.6) ? add_end_of_master(plan, random, after) : add_end_of_server(plan, random, after);
}

/// The master is to end, and the one after it.
void add_drain_of_master(Scenario& plan, Random& random) {
  FaultPlan fault;
  fault.of_master = true;
  fault.fault = Fault::kDrain;
  fault.when = kMillisecond * random.between(0, random.chance(0.5) ? 100 : 800);
  fault.side.push_back(0);
  plan.faults.push_back(fault);
}

/// Servers that are to end, one after another or at once; now and then a process is killed meanwhile.
void add_drains(Scenario& plan, Random& random) {
  std::vector<size_t> candidates;
  for (size_t node = 1; node < plan.nodes.size(); ++node)
    if (plan.nodes[node].role == MV_ROLE_SERVER) candidates.push_back(node);
  for (size_t i = 1 + random.below(4); i > 0; --i) {
    FaultPlan fault;
    fault.fault = Fault::kDrain;
    fault.when = kMillisecond * random.between(0, random.chance(0.5) ? 100 : 800);
    fault.side.push_back(candidates[random.below(candidates.size())]);
    if (random.chance(0.4)) fault.restart = kMillisecond * random.between(5, 300);
    plan.faults.push_back(fault);
  }
}

void choose_faults_with_drains(Scenario& plan, Random& random) {
  if (random.chance(0.5)) add_partitions(plan, random);
  if (random.chance(0.2)) add_pause(plan, random, false);
  if (random.chance(plan.sync ? 0.15 : 0.4)) add_kill(plan, random, true);
  add_drains(plan, random);
  if (random.chance(plan.replicas > 0 ? 0.5 : 0.1)) add_end_of_server(plan, random, 0);
}

/// Servers come, and some of them, or others, are to end again.
void choose_faults_with_growth(Scenario& plan, Random& random) {
  if (random.chance(0.4)) add_partitions(plan, random);
  if (random.chance(0.2)) add_pause(plan, random, false);
  if (random.chance(plan.sync ? 0.15 : 0.4)) add_kill(plan, random, true);
  std::vector<size_t> leavers;
  for (size_t node = 1; node < plan.nodes.size(); ++node)
    if (plan.nodes[node].role == MV_ROLE_SERVER) leavers.push_back(node);
  for (size_t i = random.chance(0.2) ? 0 : 1; i <= plan.vacancies; ++i) {  // now and then one more than there are places
    FaultPlan fault;
    fault.fault = Fault::kCome;
    fault.when = kMillisecond * random.between(0, random.chance(0.5) ? 100 : 800);
    fault.side.push_back(plan.nodes.size() + i);
    leavers.push_back(fault.side.front());
    plan.faults.push_back(fault);
  }
  for (size_t i = random.below(4); i > 0; --i) {
    FaultPlan fault;
    fault.fault = Fault::kDrain;
    fault.when = kMillisecond * random.between(0, random.chance(0.5) ? 200 : 1000);
    fault.side.push_back(leavers[random.below(leavers.size())]);
    if (random.chance(0.3)) {
      fault.fault = Fault::kResize;
      fault.side.front() = 0;
      fault.servers = static_cast<uint32_t>(1 + random.below(plan.parts()));
    }
    plan.faults.push_back(fault);
  }
  if (random.chance(plan.replicas > 0 ? 0.5 : 0.1) && plan.servers() > 1) add_end_of_server(plan, random, 0);
}

/// Some newcomers are lost again, perhaps before they are ready.
void add_losses_of_newcomers(Scenario& plan, Random& random) {
  for (size_t i = 0; i < plan.newcomers.size(); ++i) {
    if (!random.chance(0.3)) continue;
    const size_t place = plan.first_newcomer() + i;
    const auto comes = std::ranges::find_if(plan.faults, [&](const FaultPlan& fault) { return fault.side.front() == place; });
    FaultPlan fault;
    fault.fault = std::vector{Fault::kKill, Fault::kKillQuietly, Fault::kAbort}[random.pick({6, 2, 2})];
    fault.when = comes->when + kMillisecond * random.between(0, random.chance(0.5) ? 20 : 400);
    fault.side.push_back(place);
    plan.faults.push_back(fault);
  }
}

/// Workers come; some processes, newcomers among them, are lost. In sync mode, where a newcomer makes the calls that the others still have to make, no
/// worker is lost: that would fail barriers of theirs.
void choose_faults_with_newcomers(Scenario& plan, Random& random, bool masters) {
  if (random.chance(0.4)) add_partitions(plan, random);
  if (random.chance(0.2)) add_pause(plan, random, false);
  if (random.chance(0.4) && !plan.sync) add_kill(plan, random, true);
  if (plan.replicas > 0 && random.chance(0.5)) add_end_of_server(plan, random, 0);
  std::erase_if(plan.faults, [&](const FaultPlan& fault) {
    return plan.sync && plan.replicas > 0 && fault.fault != Fault::kPart && fault.fault != Fault::kStall && fault.fault != Fault::kPause &&
           (plan.nodes[fault.side.front()].role & MV_ROLE_WORKER) != 0;
  });
  for (size_t i = 0; i < plan.newcomers.size(); ++i) {
    FaultPlan fault;
    fault.fault = Fault::kCome;
    fault.when = kMillisecond * random.between(0, random.chance(0.5) ? 100 : 1000);
    fault.side.push_back(plan.first_newcomer() + i);
    plan.faults.push_back(fault);
  }
  if (plan.sync) return;
  Random more(Random::mix(plan.seed ^ kNewcomers));
  add_losses_of_newcomers(plan, more);
  if (masters) add_end_of_master(plan, more, 0);
}

/// A newcomer does what one of the others does.
void write_scripts_of_newcomers(Scenario& plan, Random& random) {
  std::vector<size_t> workers;
  for (size_t node = 0; node < plan.nodes.size(); ++node)
    if ((plan.nodes[node].role & MV_ROLE_WORKER) != 0) workers.push_back(node);
  // In sync mode a newcomer waits for the next call of another worker, which a barrier would let wait for the newcomer.
  // What happens only between barriers goes with them.
  const auto needs_barriers = [&](const Step& step) {
    return step.call == Call::kBarrier || step.call == Call::kSetUpdater ||
           ((step.call == Call::kSet || step.call == Call::kErase) && !plan.tables[step.table].sets_any_time);
  };
  if (plan.sync)
    for (const size_t worker : workers) std::erase_if(plan.nodes[worker].steps, needs_barriers);
  for (NodePlan& newcomer : plan.newcomers) newcomer.steps = plan.nodes[workers[random.below(workers.size())]].steps;
}

/// Two servers at least, one of which is not the master's.
void choose_servers(Scenario& plan, Random& random) {
  const auto is_server = [&](size_t node) { return (plan.nodes[node].role & MV_ROLE_SERVER) != 0; };
  const size_t other = 1 + random.below(plan.nodes.size() - 1);
  if (!is_server(other)) plan.nodes[other].role = random.chance(0.5) ? MV_ROLE_SERVER : MV_ROLE_ALL;
  for (size_t node = 0; plan.servers() < 2; ++node)
    if (!is_server(node)) plan.nodes[node].role |= MV_ROLE_SERVER;
  if (plan.workers() == 0) plan.nodes[0].role = MV_ROLE_ALL;
}

/// One server more than the processes of a chain at least, now and then some more, so that other ones are left when several end at once.
void lengthen_chains(Scenario& plan) {
  Random random(Random::mix(plan.seed ^ kChains));
  const size_t wanted = plan.replicas + 1 + random.below(4);
  for (size_t node = 1; node < plan.nodes.size() && plan.servers() < wanted; ++node) plan.nodes[node].role |= MV_ROLE_SERVER;
  while (plan.servers() < wanted) plan.nodes.emplace_back().role = MV_ROLE_SERVER;
}

/// Enough processes that the loss of the master is survived: three servers, or two and a worker.
void choose_voters(Scenario& plan, Random& random) {
  while (plan.nodes.size() < 3) plan.nodes.emplace_back();
  for (size_t node = 1; plan.servers() < 2 || (plan.servers() < 3 && plan.servers() == plan.nodes.size()); ++node)
    plan.nodes[node % plan.nodes.size()].role |= MV_ROLE_SERVER;
  if (plan.workers() == 0) plan.nodes[random.below(plan.nodes.size())].role = MV_ROLE_ALL;
}

/// One process that is only a server, and is not the master.
void choose_leaver(Scenario& plan, Random& random) {
  const auto is_only_server = [](const NodePlan& node) { return node.role == MV_ROLE_SERVER; };
  if (std::any_of(plan.nodes.begin() + 1, plan.nodes.end(), is_only_server)) return;
  plan.nodes[1 + random.below(plan.nodes.size() - 1)].role = MV_ROLE_SERVER;
  if (plan.workers() == 0) plan.nodes[0].role = MV_ROLE_ALL;
  if (plan.servers() < 2) plan.nodes[0].role |= MV_ROLE_SERVER;
}

/// Some partitions are of one direction. Some processes that would stop for long are cut off instead: they go on, and nobody hears from them, or they
/// from nobody.
void vary_cuts(Scenario& plan, Random& random) {
  const auto draw_way = [&] { return std::vector{Way::kBoth, Way::kFrom, Way::kTo}[random.pick({2, 1, 1})]; };
  if (plan.replicas > 0 && random.chance(0.05)) {  // between two processes
    add_long_partition(plan, random);
    if (plan.faults.back().other == SIZE_MAX) plan.faults.back().fault = Fault::kIsolate;
  }
  for (FaultPlan& fault : plan.faults) {
    if (fault.fault == Fault::kLongPause && plan.replicas > 0 && random.chance(0.5)) fault.fault = Fault::kIsolate;
    if (fault.fault == Fault::kIsolate && random.chance(0.3)) fault.span = kMillisecond * random.between(4'500, 7'000);  // about the others' patience
    if (fault.fault == Fault::kPart || fault.fault == Fault::kStall || fault.fault == Fault::kIsolate) fault.way = draw_way();
  }
}

void choose_faults(Scenario& plan, Random& random) {
  if (random.chance(0.5))
    add_partitions(plan, random);
  else if (random.chance(0.2))
    add_pause(plan, random, false);
  if (random.chance(plan.sync ? 0.15 : 0.5)) add_kill(plan, random, true);
  if (random.chance(plan.sync ? 0.02 : 0.2)) add_kill(plan, random, true);
  if (random.chance(0.05)) add_kill(plan, random, false);
  if (random.chance(0.03)) add_long_partition(plan, random);
  if (random.chance(0.03)) add_pause(plan, random, true);
}

/// Updaters that keep what each worker last got. Without compensation (lambda = 0), the ledger can predict the values; that the copies of what
/// workers got are equal is shown by their comparison.
void keep_gets(Scenario& plan, Random& random) {
  for (TablePlan& table : plan.tables) {
    const bool is_float = table.spec.dtype == MV_F32 || table.spec.dtype == MV_F64, is_sgd = table.spec.updater.name == "sgd";
    if (!random.chance(0.3) || !is_float) continue;
    table.fractional = false;  // see give_updater()
    table.spec.updater = {"dcasgd", {is_sgd ? table.spec.updater.parameters.front() : 1, 0, random.chance(0.5) ? 0.5 : 0, 1e-7}};
  }
}

size_t count_role(const std::vector<NodePlan>& nodes, int role) {
  return static_cast<size_t>(
      std::count_if(nodes.begin(), nodes.end(), [&](const NodePlan& n) { return (n.role & role) != 0; }));
}

}  // namespace

size_t Scenario::servers() const { return count_role(nodes, MV_ROLE_SERVER); }
size_t Scenario::workers() const { return count_role(nodes, MV_ROLE_WORKER); }

size_t Scenario::restarts() const {
  return static_cast<size_t>(
      std::count_if(faults.begin(), faults.end(), [&](const FaultPlan& f) { return f.restart != base::kNever && (nodes[f.side.front()].role & MV_ROLE_WORKER) != 0; }));
}

bool Scenario::has_consistency(shard::Consistency wanted) const {
  return std::any_of(tables.begin(), tables.end(),
                     [&](const TablePlan& table) { return table.spec.consistency(sync, worker_places()) == wanted; });
}

bool Scenario::loses_members() const {
  return std::any_of(faults.begin(), faults.end(), [](const FaultPlan& f) {
    return f.fault != Fault::kPart && f.fault != Fault::kStall && f.fault != Fault::kPause && f.fault != Fault::kDrain && f.fault != Fault::kCome && f.fault != Fault::kResize;
  });
}

bool Scenario::has_drains() const {
  return vacancies > 0 || std::any_of(faults.begin(), faults.end(), [](const FaultPlan& f) { return f.fault == Fault::kDrain; });
}

bool Scenario::keeps_gets() const {
  return std::any_of(tables.begin(), tables.end(), [](const TablePlan& table) { return table.keeps_gets(); });
}

Scenario make_scenario(uint64_t seed, size_t nodes, uint32_t replicas, bool drains, bool masters, bool grows, bool elastic) {
  Random random(seed);
  Scenario plan;
  plan.seed = seed;
  plan.nodes.resize(nodes != 0 ? nodes : 2 + random.below(8));
  const bool many = plan.nodes.size() > kMany;
  plan.replicas = replicas;
  choose_roles(plan, random);
  if (replicas > 0 || drains) choose_servers(plan, random);
  if (replicas > 1) lengthen_chains(plan);
  if (drains) choose_leaver(plan, random);
  if (masters) choose_voters(plan, random);
  const bool master_leaves = drains && replicas == 0 && Random(Random::mix(seed ^ kMasterLeaves)).chance(0.6) &&
                             plan.workers() > ((plan.nodes.front().role & MV_ROLE_WORKER) != 0 ? 1 : 0);
  if (master_leaves) plan.nodes.front().role = MV_ROLE_SERVER;
  if (masters && drains && plan.workers() > ((plan.nodes.front().role & MV_ROLE_WORKER) != 0 ? 1 : 0)) plan.nodes.front().role = MV_ROLE_SERVER;
  if (grows) plan.vacancies = 1 + random.below(4);
  plan.elastic = elastic;
  if (elastic) plan.newcomers.resize(1 + random.below(4));
  for (NodePlan& newcomer : plan.newcomers) newcomer.role = MV_ROLE_WORKER;
  choose_start(plan, random);
  plan.sync = random.chance(0.4);
  choose_network(plan, random);
  elastic ? choose_faults_with_newcomers(plan, random, masters) : grows ? choose_faults_with_growth(plan, random) : masters ? choose_faults_with_masters(plan, random) : drains ? choose_faults_with_drains(plan, random) : replicas > 0 ? choose_faults_with_replicas(plan, random) : choose_faults(plan, random);
  const bool large = !many && random.chance(0.025);
  for (size_t i = random.chance(0.25) && !large ? 2 : 1; i > 0; --i)
    plan.tables.push_back(choose_table(plan, random, plan.tables.size(), large));
  if (random.chance(0.3)) plan.window_bytes = large ? 1 << 20 : size_t{256} << random.below(9);
  const size_t length = many ? 6 : large ? 10 : random.chance(0.25) ? 40 + random.below(80) : 10 + random.below(40);
  plan.direct = !plan.sync && random.chance(0.4);
  plan.out_of_step =
      plan.sync && !elastic && plan.tables.size() == 1 && random.chance(0.04);  // with two tables it would go unnoticed
  plan.sync ? write_sync_scripts(plan, random, length) : write_async_scripts(plan, random, length);
  plan.asynchronous = random.chance(0.7) ? 0.1 * static_cast<double>(random.between(1, 8)) : 0;
  plan.forgotten = random.chance(0.5) ? 0.1 * static_cast<double>(random.between(1, 5)) : 0;
  plan.hasty = random.chance(0.35) ? 0.1 * static_cast<double>(random.between(1, 5)) : 0;
  plan.hasty_barriers =
      !plan.sync && plan.hasty > 0 && random.chance(0.3);  // in sync mode all workers must pass the same ones
  plan.think = Nanos(random.between(1'000, 20'000'000));
  Random more(Random::mix(seed ^ kVariety));  // a separate generator: the other half of the seeds stays unchanged
  if (!plan.out_of_step && more.chance(0.5)) vary_tables(plan, more, many ? length : length * 2 / 3, large);
  if (elastic) write_scripts_of_newcomers(plan, more);
  if (replicas > 0) plan.direct = false;
  Random cuts(Random::mix(seed ^ kCuts));
  if (masters && (drains || grows)) {
    if (plan.nodes.front().role != MV_ROLE_SERVER || cuts.chance(0.4)) add_end_of_master(plan, cuts, 0);
    else add_drain_of_master(plan, cuts);
  }
  Random leaving(Random::mix(seed ^ kMasterLeaves));
  if (master_leaves)
    for (size_t i = 1 + leaving.below(3); i > 0; --i) add_drain_of_master(plan, leaving);
  vary_cuts(plan, cuts);
  // They would lose values in clusters that lose servers.
  Random without(Random::mix(seed ^ kNoBackups));
  for (TablePlan& table : plan.tables)
    if (replicas > 0 && plan.has_drains() && !plan.loses_members() && without.chance(0.5)) table.spec.flags |= MV_NO_BACKUPS;
  plan.workers_drain = plan.has_drains() && Random(Random::mix(seed ^ kWorkersDrain)).chance(0.5);
  plan.etcd = replicas > 0 && Random(Random::mix(seed ^ kEtcd)).chance(0.4);
  plan.one_machine = replicas > 0 && Random(Random::mix(seed ^ kOneMachine)).chance(0.6);
  Random gets(Random::mix(seed ^ kKeepsGets));
  if (replicas > 0 || plan.has_drains()) keep_gets(plan, gets);
  return plan;
}

std::string Scenario::describe() const {
  std::string text = fmt::format("{} nodes, {} workers, {} servers, {} mode, {} network", nodes.size(), workers(),
                                 servers(), sync ? "sync" : "async", conditions.lossy ? "lossy" : "reliable");
  if (window_bytes != Scenario().window_bytes) text += fmt::format(", window of {} bytes", window_bytes);
  if (hasty > 0) text += ", hasty";
  if (direct) text += ", direct";
  if (vacancies > 0) text += fmt::format(", {} vacant places", vacancies);
  if (elastic) text += fmt::format(", {} newcomers", newcomers.size());
  if (one_machine) text += ", on one machine";
  if (workers_drain) text += ", workers that drain";
  if (etcd) text += ", with an etcd";
  if (out_of_step) text += ", out of step";
  for (size_t node = 0; node < nodes.size(); ++node)
    if (nodes[node].slowness > 1) text += fmt::format(", node {} is slow", node);
  for (const TablePlan& table : tables) text += fmt::format("; \"{}\" is {}", table.spec.name, table.spec.describe());
  for (const FaultPlan& fault : faults) {
    static constexpr const char* kNames[] = {"partition",  "stall", "long partition", "pause",
                                             "long pause", "kill",  "quiet kill", "abort", "drain", "arrival", "resize", "isolation"};
    text += fmt::format("; {} of{}", kNames[static_cast<size_t>(fault.fault)], fault.of_master ? " the master, not" : "");
    for (const size_t node : fault.side) text += fmt::format(" {}", node);
    if (fault.other != SIZE_MAX) text += fmt::format(" from {}", fault.other);
    if (fault.way != Way::kBoth) text += fault.way == Way::kFrom ? ", which nobody hears," : ", which hears nobody,";
    text += fmt::format(" at {:.1f} ms", static_cast<double>(fault.when.count()) / 1e6);
    if (fault.span.count() > 0) text += fmt::format(" for {:.1f} ms", static_cast<double>(fault.span.count()) / 1e6);
    if (fault.restart != base::kNever)
      text += fmt::format(", back after {:.1f} ms", static_cast<double>(fault.restart.count()) / 1e6);
  }
  return text;
}

}  // namespace mv::sim
