#pragma once
// The expected content of checkpoints, and a cluster whose workers make and load them.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoints/disk.hpp"
#include "engine/member.hpp"
#include "network.hpp"

namespace mv::sim {

inline constexpr size_t kMostWorkers = 5;
inline constexpr uint64_t kRows = 11;

/// All values of the two tables: the dense one counts each worker's adds in its own column, in every row; the keyed one has separate keys
/// for each worker.
struct Content {
  std::vector<double> dense = std::vector<double>(kRows * kMostWorkers);
  std::map<int64_t, int64_t> keys;
  bool operator==(const Content&) const = default;
  /// Only what this worker has added.
  Content of(size_t worker) const;
};
Content content_of(const Disk::Checkpoint& checkpoint);
inline size_t owner_of(int64_t key) { return static_cast<size_t>(key / 1000); }

/// Each worker's adds begun before each of its saves. A worker that never ran in the cluster has added nothing.
struct Promises {
  std::vector<std::vector<Content>> at_save{kMostWorkers};
  std::vector<bool> killed = std::vector<bool>(kMostWorkers);
  bool in_step = true;  ///< no worker gave up a save and tried again
  /// Why `content` is not allowed in a checkpoint; "" if it is.
  std::string wrong_with(const Content& content) const;
};

struct Plan {
  uint64_t seed = 0;
  std::vector<int> roles;
  Conditions conditions;
  Nanos probe_after = base::kNever;
  size_t rounds = 3;
  double failing = 0, hasty = 0, behind = 0.5;
  std::vector<bool> loads;   ///< by round: all load the newest one
  size_t parts = 0;          ///< the number of short partitions
  size_t killed = SIZE_MAX;  ///< the node to kill
  size_t killed_too = SIZE_MAX;  ///< with chains of three: another one
  Nanos killed_at{0}, killed_too_at{0};
  size_t replicas = 0;
  /// The updater of the dense table keeps what each worker last got. It compensates nothing, so values are as with adds of -1.
  bool keeps_gets() const;
  /// A server with a back-up is killed: no worker may get an error from that.
  bool is_harmless() const { return replicas > 0 && killed != SIZE_MAX && roles[killed] == MV_ROLE_SERVER; }
  std::string describe() const;
};
Plan make_plan(uint64_t seed, size_t replicas);
/// The cluster that loads the other one's checkpoints.
Plan make_successors(uint64_t seed, size_t replicas);

/// Runs a cluster to its end: its workers add, save and load in turns; in a successor cluster, they load and check.
void run_cluster(Timeline& timeline, Disk& disk, const Plan& plan, Promises& promises, bool are_successors, bool verbose);

}  // namespace mv::sim
