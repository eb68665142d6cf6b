#pragma once
// What a seed decides before anything runs: the cluster, its network, what the workers do, and what goes wrong.

#include <cstdint>
#include <string>
#include <vector>

#include "ledger.hpp"
#include "network.hpp"

namespace mv::sim {

enum class Call {
  kAdd,
  kAddRows,
  kGet,
  kGetRows,
  kPeek,
  kPeekRows,
  kBarrier,
  kCatchUp,
  kOpen,
  kSet,
  kErase,
  kScan,  ///< of keyed tables
  kClock,
  kSetUpdater
};

/// One line of a worker's script.
struct Step {
  Call call = Call::kAdd;
  size_t table = 0;
};

struct NodePlan {
  int role = MV_ROLE_ALL;
  int64_t rank = -1;  ///< the one it asks for
  Nanos start{0};
  std::vector<Step> steps;
  int slowness = 1;  ///< it thinks so many times as long as others
};

enum class Fault { kPart, kStall, kLongPart, kPause, kLongPause, kKill, kKillQuietly };

struct FaultPlan {
  Fault fault = Fault::kPart;
  Nanos when{0};  ///< after everyone is ready; while joining if `early`
  bool early = false;
  std::vector<size_t> side;  ///< these nodes are cut off from the others; or the one that stops or is killed
  size_t other = SIZE_MAX;   ///< only from this one
  Nanos span{0};
  Nanos restart = base::kNever;  ///< a killed worker comes back after this time
};

struct Scenario {
  uint64_t seed = 0;
  bool sync = false;
  Weather weather;
  Nanos probe_after = base::kNever;
  size_t window_bytes = 8 << 20;
  std::vector<NodePlan> nodes;
  std::vector<TablePlan> tables;
  std::vector<FaultPlan> faults;
  // how the workers go about their calls
  double asynchronous = 0, forgotten = 0;  ///< shares of the calls
  double hasty = 0;                        ///< share with a short deadline, or withdrawn
  bool hasty_barriers = false;
  bool direct = false;       ///< workers use their own node's part without a message where its table allows it
  bool small = false;        ///< forgotten changes of one message take the short way
  bool out_of_step = false;  ///< sync mode: one worker makes other calls than the rest
  Nanos think{0};
  size_t in_flight = 8;

  size_t servers() const;
  size_t workers() const;
  size_t restarts() const;
  shard::Consistency consistency(size_t table) const { return tables[table].spec.consistency(sync, workers()); }
  bool has_consistency(shard::Consistency consistency) const;
  /// Somebody is killed, or out of reach for longer than the others' patience.
  bool loses_members() const;
  /// One line for people.
  std::string describe() const;
};

/// @param nodes how many, or 0: 2 to 9
Scenario make_scenario(uint64_t seed, size_t nodes);

/// For half of the seeds: gives the tables consistencies, kinds and updaters of their own, and the workers scripts that use
/// them.
void vary_tables(Scenario& plan, Random& random, size_t length, bool large);

}  // namespace mv::sim
