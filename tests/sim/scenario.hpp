#pragma once
// The decisions of a seed before a run: the cluster, its network, the workers' programs, and the faults.

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
  int64_t rank = -1;  ///< the requested rank
  Nanos start{0};
  std::vector<Step> steps;
  int slowness = 1;  ///< factor of its pauses between calls
};

enum class Fault { kPart, kStall, kLongPart, kPause, kLongPause, kKill, kKillQuietly, kAbort, kDrain, kCome, kResize, kIsolate };
/// Whose messages a partition stops: those of both sides, or only those of the nodes that it names, or only those to them.
enum class Way { kBoth, kFrom, kTo };

struct FaultPlan {
  Fault fault = Fault::kPart;
  Nanos when{0};  ///< after all nodes are ready; while joining if `early`
  bool early = false;
  std::vector<size_t> side;  ///< these nodes are cut off from the others; or the one that stops, is killed or aborts
  size_t other = SIZE_MAX;   ///< only from this one
  Way way = Way::kBoth;
  Nanos span{0};
  bool of_master = false;        ///< of the present master, whoever that is, instead of `side`
  uint32_t servers = 0;          ///< kResize: the wanted number
  Nanos restart = base::kNever;  ///< a killed worker, or a drained server, restarts after this time
};

struct Scenario {
  uint64_t seed = 0;
  bool sync = false;
  uint32_t replicas = 0;
  bool one_machine = false;  ///< with replicas: back-ups have journals
  bool etcd = false;         ///< with replicas: an etcd keeps the views
  size_t vacancies = 0;  ///< places for servers that may come later: those of kCome, with numbers after the nodes'
  bool workers_drain = false;  ///< processes that are also servers hand their parts over when their workers have finished
  bool elastic = false;  ///< there are places for further workers, too
  std::vector<NodePlan> newcomers;  ///< workers that come later: those of kCome, with numbers from first_newcomer() on
  Conditions conditions;
  Nanos probe_after = base::kNever;
  size_t window_bytes = 8 << 20;
  std::vector<NodePlan> nodes;
  std::vector<TablePlan> tables;
  std::vector<FaultPlan> faults;
  // how the workers make their calls
  double asynchronous = 0, forgotten = 0;  ///< shares of the calls
  double hasty = 0;                        ///< share with a short deadline, or withdrawn
  bool hasty_barriers = false;
  bool direct = false;       ///< workers use their own node's shard without a message where its table allows it
  bool small = false;        ///< forgotten changes of one message take the fast path
  bool out_of_step = false;  ///< sync mode: one worker makes other calls than the rest
  Nanos think{0};
  size_t in_flight = 8;

  size_t servers() const;
  /// Into which each table is cut.
  size_t parts() const { return servers() + vacancies; }
  size_t workers() const;
  /// The places of workers: some newcomers take those of others that have finished.
  size_t worker_places() const { return workers() + (newcomers.size() + 1) / 2; }
  size_t restarts() const;
  /// The workers, with those that come back or later.
  size_t lives() const { return workers() + restarts() + newcomers.size(); }
  size_t first_newcomer() const { return nodes.size() + vacancies + 1; }
  shard::Consistency consistency(size_t table) const { return tables[table].spec.consistency(sync, worker_places()); }
  bool has_consistency(shard::Consistency wanted) const;
  /// Whether a node is killed, or is out of reach for longer than the others' patience.
  bool loses_members() const;
  /// Whether parts move without a loss: a server is to end, or another one may come.
  bool has_drains() const;
  /// Whether some table's updater keeps the values that each worker last got.
  bool keeps_gets() const;
  /// One line for messages.
  std::string describe() const;
};

/// @param nodes their number, or 0: 2 to 9
/// @param replicas if not 0, some servers other than the master's are killed, or stop or are cut off for longer than the others' patience;
///                with 2 often two at once
/// @param drains servers are to end, and hand their parts over
/// @param masters with replicas, the master is among those that end, or are to end
/// @param grows   the cluster has vacant places; servers come, and are to end
/// @param elastic workers come while others work, and after some have finished
Scenario make_scenario(uint64_t seed, size_t nodes, uint32_t replicas = 0, bool drains = false, bool masters = false, bool grows = false, bool elastic = false);

/// For half of the seeds: gives the tables their own consistency, kinds and updaters, and the workers scripts that use them.
void vary_tables(Scenario& plan, Random& random, size_t length, bool large);

}  // namespace mv::sim
