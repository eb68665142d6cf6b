#pragma once
// Checks changes of tables, and applies them or passes them to their table's gate.

#include <memory>
#include <span>

#include "base/pool.hpp"
#include "engine/rpc/server.hpp"
#include "engine/table/server/applier.hpp"
#include "engine/table/server/held_requests.hpp"
#include "engine/table/server/registry.hpp"
#include "engine/table/server/withheld_parts.hpp"

namespace mv::table {

/// Loop thread only.
class Changes {
 public:
  Changes(rpc::Server& rpc, const RequestClock& clock, const Roster& roster, base::Pool& pool, const Registry& registry, HeldRequests& held,
          Applier& applier, const WithheldParts& withheld)
      : rpc_(rpc), clock_(clock), roster_(roster), pool_(pool), registry_(registry), held_(held), applier_(applier), withheld_(withheld) {}

  void change(const rpc::Asked& asked, const wire::Change& request, std::span<const std::byte> payload, const base::SinkRef& staged);
  void set_updater(const rpc::Asked& asked, const wire::SetUpdater& request);
  /// A worker's clock, ordered like its changes.
  void clock(const rpc::Asked& asked, const wire::Clock& request);
  /// The payload of a change that offered it.
  void data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged);

  /// Applies a checked change that sync mode does not count: at once, but not before its worker's earlier adds.
  void change_in_order(const rpc::Asked& asked, Table& table, HeldChange&& held);
  /// Passes a checked part of an add to the gate of a merging table.
  void change_merged(const rpc::Asked& asked, Table& table, size_t worker, uint64_t index, uint32_t chunks, const HeldChange& held);

 private:
  base::Status check_times(const Table& table, const wire::Change& request, uint64_t bytes) const;
  void apply_times(const rpc::Asked& asked, Table& table, HeldChange&& one, uint32_t times, uint64_t bytes);
  void keep(HeldChange& held, std::span<const std::byte> payload, const std::shared_ptr<const void>& staged);

  rpc::Server& rpc_;
  const RequestClock& clock_;
  const Roster& roster_;
  base::Pool& pool_;
  const Registry& registry_;
  HeldRequests& held_;
  Applier& applier_;
  const WithheldParts& withheld_;
};

}  // namespace mv::table
