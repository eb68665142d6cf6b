// Tables with different consistency, kinds and updaters in one scenario, and scripts that use them together.

#include <algorithm>
#include <limits>
#include <set>

#include "scenario.hpp"

namespace mv::sim {

namespace {

using shard::Consistency;

constexpr size_t kMostTables = 3;
constexpr double kLaterRate = 0x1p-12;  ///< with a first rate of 1, a counter shows how many adds had which rate

bool is_keyed(const Scenario& plan, size_t table) { return plan.tables[table].spec.is_keyed(); }

// ---- tables

/// Sparse tables use scattered rows, key-value tables the extreme keys, too.
std::vector<int64_t> choose_keys(const shard::Spec& spec, size_t count, Random& random) {
  std::set<int64_t> keys;
  if (spec.kind == MV_KEYVALUE && random.chance(0.5))
    keys = {0, -1, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  while (keys.size() < count) {
    const uint64_t key = random.next();
    keys.insert(static_cast<int64_t>(spec.kind == MV_SPARSE ? key % spec.rows : random.chance(0.5) ? key : key % 1000));
  }
  std::vector<int64_t> chosen(keys.begin(), keys.end());
  for (size_t i = chosen.size(); i > 1; --i) std::swap(chosen[i - 1], chosen[random.below(i)]);
  return chosen;
}

void make_keyed(const Scenario& plan, TablePlan& table, Random& random) {
  const size_t lives = plan.lives();
  const size_t untouched = random.below(4), shared = 1 + random.below(random.chance(0.2) ? 60 : 15) + untouched;
  const size_t owned = lives > 20 ? 0 : lives * random.below(4);
  shard::Spec& spec = table.spec;
  spec.kind = random.chance(0.5) ? MV_SPARSE : MV_KEYVALUE;
  spec.rows = spec.kind == MV_SPARSE ? (shared + owned) * (1 + random.below(random.chance(0.5) ? 3 : 1'000'000)) : 0;
  const bool wide = lives <= 20 && random.chance(0.03);  // so that an add is several messages
  spec.cols = lives + 1 + (wide ? 3000 + random.below(3000) : random.below(random.chance(0.1) ? 300 : 5));
  spec.dtype = static_cast<mv_dtype>(std::vector<int>{MV_F32, MV_F64, MV_I32, MV_I64}[random.below(4)]);
  table.initial = 0;
  table.fractional = table.fractional && spec.dtype != MV_I32 && spec.dtype != MV_I64;
  const int64_t least = table.fractional ? 0 : -9;  // where values round, nothing may cancel
  spec.initial = random.chance(0.5) ? static_cast<double>(random.between(least, 9)) : 0;
  table.keys = choose_keys(spec, shared + owned, random);
  table.untouched = untouched;
  table.owned_from = shared;
  // An add that its caller gave up may be applied after the caller's next calls.
  table.sets_any_time = owned > 0 && plan.hasty == 0 && random.chance(0.4);
}

/// sgd without decay is linear, so the ledger can predict it.
void give_updater(TablePlan& table, Random& random) {
  if (table.spec.dtype != MV_F32 && table.spec.dtype != MV_F64) return;
  table.fractional = false;  // added values and existing ones would cancel
  table.spec.updater = {"sgd", {random.chance(0.5) ? 1 : 0.5, 0}};
  const bool has_owned = table.spec.is_keyed() && table.owned_from < table.keys.size();
  if (table.spec.dtype != MV_F64 || has_owned || random.chance(0.3)) return;
  table.spec.updater.parameters.front() = 1;
  table.later_rate = kLaterRate;
}

void vary_table(Scenario& plan, TablePlan& table, Random& random) {
  const size_t consistency = random.pick(plan.sync ? std::vector{6.0, 0.0, 3.0} : std::vector{4.0, 1.5, 5.0});
  if (consistency == 1) table.spec.staleness = 0;
  if (consistency == 2) table.spec.staleness = random.chance(0.8) ? random.between(1, 3) : random.between(4, 12);
  if (random.chance(0.45)) make_keyed(plan, table, random);
  if (random.chance(0.3)) give_updater(table, random);
}

// ---- scripts

/// A call that a worker may make at any time, independently of the others.
Step choose_free(const Scenario& plan, Random& random) {
  const size_t table = random.below(plan.tables.size());
  const bool keyed = is_keyed(plan, table);
  if (plan.consistency(table) == Consistency::kSync) {
    if (plan.tables[table].sets_any_time && random.chance(0.6))
      return {random.chance(0.5) ? Call::kSet : Call::kErase, table};
    return {random.chance(0.6) || !keyed ? Call::kPeekRows : Call::kScan, table};
  }
  if (keyed) {
    static constexpr Call kCalls[] = {Call::kAdd,      Call::kAddRows, Call::kGet,   Call::kGetRows, Call::kPeek,
                                      Call::kPeekRows, Call::kSet,     Call::kErase, Call::kScan};
    return {kCalls[random.pick({1, 4, 1, 2, 0.3, 0.3, 1.2, 1, 0.8})], table};
  }
  static constexpr Call kCalls[] = {Call::kAdd,     Call::kAddRows, Call::kGet,
                                    Call::kGetRows, Call::kPeek,    Call::kPeekRows};
  return {kCalls[random.pick({3, 3, 1.5, 1, 0.4, 0.3})], table};
}

/// Calls of only one worker, or of every worker on its own rows, while no worker makes counted calls: between two barriers.
void write_interlude(const Scenario& plan, Random& random, std::vector<Step>& common) {
  const size_t table = random.below(plan.tables.size());
  if (plan.consistency(table) != Consistency::kSync) return;
  common.push_back({Call::kCatchUp, 0});
  common.push_back({Call::kBarrier, 0});
  if (plan.tables[table].later_rate != 0) common.push_back({Call::kSetUpdater, table});
  for (size_t i = random.below(3); is_keyed(plan, table) && i > 0; --i)
    common.push_back({random.chance(0.5) ? Call::kSet : Call::kErase, table});
  common.push_back({Call::kCatchUp, 0});
  common.push_back({Call::kBarrier, 0});
}

/// Calls that all workers make in the same order, so that none waits for ever: counted calls, clocks, barriers.
std::vector<Step> write_common(const Scenario& plan, Random& random, size_t length) {
  std::vector<Step> common;
  while (common.size() < length) {
    const size_t table = random.below(plan.tables.size());
    const Consistency consistency = plan.consistency(table);
    const size_t kind = random.pick({10, 0.6, 0.4, 0.4});
    if (kind == 0 && consistency == Consistency::kSync)
      common.push_back({random.chance(0.6) ? Call::kAdd : Call::kGet, table});
    else if (kind == 0)
      common.push_back({Call::kClock, table});
    if (kind == 1) common.push_back({Call::kBarrier, 0});
    if (kind == 2) common.push_back({Call::kCatchUp, 0});
    if (kind == 3) write_interlude(plan, random, common);
  }
  return common;
}

Call own_choice(Call call, Random& random) {
  if (call == Call::kAdd && random.chance(0.5)) return Call::kAddRows;
  if (call == Call::kGet && random.chance(0.3)) return Call::kGetRows;
  return call;
}

void write_scripts(Scenario& plan, Random& random, size_t length) {
  const bool locked = plan.has_consistency(Consistency::kSync), stale = plan.has_consistency(Consistency::kStale);
  const std::vector<Step> common = write_common(plan, random, locked ? length : stale ? length / 3 : length / 8);
  const double free_share = locked ? 0.4 : stale ? 0.65 : 0.85;
  const bool some_stop = random.chance(0.25);
  size_t switcher = random.below(plan.nodes.size());
  while ((plan.nodes[switcher].role & MV_ROLE_WORKER) == 0) switcher = (switcher + 1) % plan.nodes.size();
  std::set<size_t> switched;
  for (size_t at = 0; at < plan.nodes.size(); ++at) {
    NodePlan& node = plan.nodes[at];
    node.steps.clear();
    const size_t end = some_stop && random.chance(0.4) ? random.below(common.size() + 1) : common.size();
    for (size_t i = 0; i < end; ++i) {
      while (random.chance(free_share)) node.steps.push_back(choose_free(plan, random));
      Step step = common[i];
      step.call = own_choice(step.call, random);
      if (step.call == Call::kSetUpdater && (at != switcher || !switched.insert(step.table).second)) continue;
      node.steps.push_back(step);
    }
    if (random.chance(0.1)) node.steps.push_back({Call::kOpen, random.below(plan.tables.size())});
  }
  std::vector<Step>& steps = plan.nodes[switcher].steps;
  for (size_t table = 0; table < plan.tables.size(); ++table)
    if (plan.tables[table].later_rate != 0 && !switched.contains(table))
      steps.insert(steps.begin() + random.between(0, static_cast<int64_t>(steps.size())), {Call::kSetUpdater, table});
}

/// In sync mode all workers wait for all, so one loss blocks every worker. Drops most kills, to test other cases too, and all restarts.
void drop_blocking_kills(Scenario& plan, Random& random) {
  if (!plan.has_consistency(Consistency::kSync) || plan.sync) return;
  std::erase_if(plan.faults, [&](const FaultPlan& fault) {
    return (fault.fault == Fault::kKill || fault.fault == Fault::kKillQuietly) && random.chance(0.7);
  });
  for (FaultPlan& fault : plan.faults) fault.restart = base::kNever;
}

/// Tables of many messages keep their scripts, in which all workers tick equally often between two barriers.
void vary_large(Scenario& plan, Random& random) {
  for (TablePlan& table : plan.tables) table.spec.staleness = random.between(1, 3);
  plan.hasty_barriers = false;
  const std::vector<uint64_t> ticks{random.below(3), random.below(4), random.below(4), random.below(3),
                                    random.below(3)};
  for (NodePlan& node : plan.nodes) {
    std::vector<Step> steps;
    size_t part = 0, begin = 0;
    const auto tick = [&] {
      for (uint64_t i = 0; i < ticks[part % ticks.size()]; ++i)
        for (size_t table = 0; table < plan.tables.size(); ++table)
          steps.insert(steps.end() - static_cast<std::ptrdiff_t>(random.below(steps.size() - begin + 1)),
                       {Call::kClock, table});
    };
    for (const Step& step : std::exchange(node.steps, {})) {
      if (step.call != Call::kBarrier) {
        steps.push_back(step);
        continue;
      }
      tick();
      ++part;
      steps.push_back(step);
      begin = steps.size();
    }
    tick();
    node.steps = std::move(steps);
  }
}

}  // namespace

void vary_tables(Scenario& plan, Random& random, size_t length, bool large) {
  if (large && !plan.sync) return vary_large(plan, random);
  if (large) return;
  if (plan.tables.size() < kMostTables && random.chance(0.3)) {
    plan.tables.push_back(plan.tables.front());
    plan.tables.back().spec.name = fmt::format("t{}", plan.tables.size() - 1);
  }
  const bool one_only = random.chance(0.3);  // the others stay unchanged
  for (TablePlan& table : plan.tables)
    if (!one_only || &table == &plan.tables.front()) vary_table(plan, table, random);
  drop_blocking_kills(plan, random);
  if (plan.has_consistency(Consistency::kSync) || plan.has_consistency(Consistency::kStale)) plan.hasty_barriers = false;  // all pass the same ones
  for (NodePlan& node : plan.nodes)
    if (plan.nodes.size() <= 20 && random.chance(0.12)) node.slowness = static_cast<int>(random.between(3, 15));
  plan.direct = random.chance(0.4);
  plan.small = random.chance(0.5);
  write_scripts(plan, random, std::max<size_t>(length, 6));
}

}  // namespace mv::sim
