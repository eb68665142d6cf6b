#pragma once
// How tables stand, as one node sees them, and whom the gates' requests wait for.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/cluster/wait.hpp"
#include "engine/rpc/pending.hpp"
#include "shard/spec.hpp"

namespace mv::table {

/// Of one worker on one table.
struct Tally {
  uint32_t worker = 0;  ///< its id
  uint64_t adds = 0, gets = 0, clock = 0;
};

/// A worker tells of its own calls; a server, where a gate counts them, what it holds of each worker's.
struct TableState {
  std::string name;
  std::string what;  ///< as shard::Spec::describe()
  shard::Consistency consistency = shard::Consistency::kAsync;
  bool complete = true;  ///< its creation
  std::vector<Tally> tallies;
};

/// The workers in messages, by number: of all tables together.
using WorkerNames = std::shared_ptr<const std::vector<std::string>>;

/// A request that a gate holds.
struct GateWait {
  struct Missing {
    size_t worker;
    std::string what;
  };
  cluster::WaitKind kind;
  rpc::Asked asked;
  uint64_t number;  ///< as cluster::Wait's
  std::vector<Missing> missing;
};

}  // namespace mv::table
