#pragma once
// Transfers of updaters' states to a worker that saves them, and back.

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/rpc/server.hpp"
#include "engine/table/server/registry.hpp"

namespace mv::table {

/// Each transfer is a series of requests of one worker, in order. Loop thread only.
class StateTransfers {
 public:
  StateTransfers(rpc::Server& rpc, const Registry& registry) : rpc_(rpc), registry_(registry) {}

  void read(const rpc::Asked& asked, const wire::States& request);
  void write(const rpc::Asked& asked, const wire::SetStates& request, std::span<const std::byte> payload);
  void forget(base::Peer worker);
  bool is_idle() const { return reading_.empty() && writing_.empty(); }

 private:
  struct Reading {
    std::unique_ptr<shard::Snapshot> snapshot;
    shard::Rows rows = {};  ///< the rows whose states are being sent
    size_t state = 0;       ///< the next of their states
    uint64_t chunk = 0;
  };
  /// The states of some rows.
  struct Writing {
    uint64_t first = 0, count = 0;
    std::vector<std::vector<std::byte>> states;
  };
  /// False once the transfer has ended.
  bool answer(const rpc::Asked& asked, Table& table, Reading& reading);

  rpc::Server& rpc_;
  const Registry& registry_;
  wire::FrameBuilder builder_;
  std::map<std::pair<base::Peer, uint32_t>, Reading> reading_;  ///< by worker and table
  std::map<std::pair<base::Peer, uint32_t>, Writing> writing_;
};

}  // namespace mv::table
