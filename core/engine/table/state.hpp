#pragma once
// The state of tables as one node sees it, and the workers that the gates' requests wait for.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cluster/wait.hpp"
#include "engine/rpc/pending.hpp"
#include "shard/spec.hpp"

namespace mv::table {

/// The calls of one worker on one table.
struct Tally {
  uint32_t worker = 0;  ///< its id
  uint64_t adds = 0, gets = 0, clock = 0;
};

/// The size of a server's part of a table.
struct PartSize {
  uint64_t stored = 0, memory_bytes = 0;  ///< rows or keys; as in shard::Usage
};

/// A worker reports its own calls. A server reports each worker's calls that it has, if a gate counts them.
struct TableState {
  std::string name;
  std::string what;  ///< as shard::Spec::describe()
  shard::Consistency consistency = shard::Consistency::kAsync;
  bool complete = true;  ///< its creation
  std::vector<Tally> tallies;
  std::optional<PartSize> part = std::nullopt;  ///< of a server that has one
};

/// The names of workers in messages, by worker id. All tables share them.
using WorkerNames = std::shared_ptr<const std::vector<std::string>>;

/// A request that a gate holds.
struct GateWait {
  struct Missing {
    size_t worker;
    std::string what;
  };
  cluster::WaitKind kind;
  rpc::Asked asked;
  uint64_t number;  ///< as in cluster::Wait
  std::vector<Missing> missing;
};

}  // namespace mv::table
