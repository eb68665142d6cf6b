#pragma once
// What checkpoints must hold, and a cluster whose workers make and load them.

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

/// All values of the two tables: the dense one counts each worker's adds in a column of its own, in every row; the
/// keyed one has keys of its own for each worker.
struct Content {
  std::vector<double> dense = std::vector<double>(kRows * kMostWorkers);
  std::map<int64_t, int64_t> keys;
  bool operator==(const Content&) const = default;
  /// Only what this worker has added.
  Content of(size_t worker) const;
};
Content content_of(const Disk::Checkpoint& checkpoint);
inline size_t owner_of(int64_t key) { return static_cast<size_t>(key / 1000); }

/// What each worker had begun before each of its saves. A worker without a life in the cluster has added nothing.
struct Promises {
  std::vector<std::vector<Content>> at_save{kMostWorkers};
  std::vector<bool> killed = std::vector<bool>(kMostWorkers);
  bool in_step = true;  ///< nobody gave up a save and tried again
  /// Why `content` is nothing that a checkpoint may hold; "" if it is.
  std::string wrong_with(const Content& content) const;
};

struct Plan {
  uint64_t seed = 0;
  std::vector<int> roles;
  Weather weather;
  Nanos probe_after = base::kNever;
  size_t rounds = 3;
  double failing = 0, hasty = 0;
  std::vector<bool> loads;   ///< by round: all load the newest one
  size_t parts = 0;          ///< short partitions
  size_t killed = SIZE_MAX;  ///< this node
  Nanos killed_at{0};
  std::string describe() const;
};
Plan make_plan(uint64_t seed);
/// The cluster that loads what the other one left.
Plan make_heirs(uint64_t seed);

/// Runs a cluster to its end: workers that add, save and load by turns; or, as heirs, load and look.
void run_cluster(Timeline& timeline, Disk& disk, const Plan& plan, Promises& promises, bool heirs, bool verbose);

}  // namespace mv::sim
