#pragma once
// The server's side of tables: registers, stores and serves this server's parts.

#include <memory>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/pool.hpp"
#include "engine/cluster/view.hpp"
#include "engine/rpc/server.hpp"
#include "engine/table/server/answers.hpp"
#include "engine/table/server/beginnings.hpp"
#include "engine/table/server/applier.hpp"
#include "engine/table/server/changes.hpp"
#include "engine/table/server/checkpoint_tables.hpp"
#include "engine/table/server/creations.hpp"
#include "engine/table/server/gate_decisions.hpp"
#include "engine/table/server/gets.hpp"
#include "engine/table/server/held_requests.hpp"
#include "engine/table/server/many_requests.hpp"
#include "engine/table/server/merger.hpp"
#include "engine/table/server/part_state.hpp"
#include "engine/table/server/queries.hpp"
#include "engine/table/server/registry.hpp"
#include "engine/table/server/request_clock.hpp"
#include "engine/table/server/roster.hpp"
#include "engine/table/server/state_transfers.hpp"
#include "engine/table/server/table_status.hpp"
#include "engine/table/server/withheld_parts.hpp"

namespace mv::table {

/// Connects the parts of a server. Passes them table requests (Create … Got), which they answer through rpc, and the
/// ends of workers. Loop thread only; callers' threads may also use the shards themselves (Shard is thread-safe).
class Server {
 public:
  Server(const base::Clock& clock, rpc::Server& rpc, base::Pool& pool, bool shares_memory);

  /// Call it once, before any request: sets the workers, and which of the servers this is. The cluster engine owns the
  /// view.
  /// See Roster::start().
  void start(const cluster::View& view, base::Peer self, bool has_copy = false) { roster_.start(view, self, has_copy); }
  /// See Roster::has_copy().
  void set_has_copy(bool on) { roster_.set_has_copy(on); }
  void set_copies_all(bool on) { roster_.set_copies_all(on); }
  void worker_finished(base::Peer worker);
  void worker_lost(base::Peer worker, const base::Status& why);
  /// The worker replaces a lost one. The tables that it creates again exist as they are.
  void worker_joined(base::Peer worker);

  /// Whether the request, or the values that this change has offered, may need memory that this server lacks: it is
  /// processed before the copies get it, with the refusals.
  bool may_lack_memory(const wire::Message& request) const;
  bool may_lack_memory(const rpc::Asked& offered) const;
  Refusals& refusals() { return refusals_; }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                  const base::SinkRef& staged);
  void on_data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) { changes_.data(asked, payload, staged); }
  void on_cancel(const rpc::Asked& asked);

  /// The requests that wait here, and the workers that they wait for.
  std::vector<cluster::Wait> waits() const { return status_.waits(); }
  std::vector<TableState> states() const { return status_.states(); }
  /// The number of requests that the gates hold.
  uint64_t held() const { return held_.size(); }
  GateLog& gate_log() { return held_.log(); }
  const GateLog& gate_log() const { return held_.log(); }

  /// Whether the request is a get that changes nothing here. Other gets count for a gate, wait at it, report a loss to
  /// their worker, keep a backup of the values that it got (DC-ASGD), or change which row is the least recently used
  /// one.
  bool only_reads(const wire::Message& request) const;
  /// Whether the request is a get that waits for its rounds of merging tables, and has no other effect unless a worker
  /// is lost meanwhile.
  bool only_waits(base::Peer worker, const wire::Message& request) const;
  /// Whether the request is about values of tables without back-ups only (MV_NO_BACKUPS).
  bool is_without_backups(const wire::Message& request) const;
  bool is_without_backups(uint32_t number) const;
  bool any_without_backups() const;
  /// Whether the request is about values that are lost: see below. A server that has taken the part over knows of no request for them, and would
  /// take a repeated one for done.
  bool is_gone(const wire::Message& request) const;
  /// Nobody has the values of those tables any more. Requests fail with `why` until they are loaded.
  void lose_without_backups(const base::Status& why);
  /// The same for all tables: the copy from which this server has them lacks changes.
  void lose_all(const base::Status& why);
  /// For a server with a copy (see WithheldParts): whether the request may be withheld from the copy, and where it
  /// waits then.
  bool may_withhold(const rpc::Asked& asked, const wire::Message& request) const;
  WithheldParts& withheld() { return withheld_; }
  const HeldChange* waiting_change(const rpc::Asked& asked) const { return held_.changes().find(asked); }
  /// The copy has received the part.
  void release(const rpc::Asked& asked);
  /// The numbers of tables given so far: 0 .. numbers() - 1.
  uint32_t numbers() const { return registry_.size(); }
  bool has(uint32_t number) const { return registry_.at(number) != nullptr; }
  /// This server's part of a table, for callers' threads of the same process.
  std::shared_ptr<shard::Shard> shard(uint32_t number) const;
  std::shared_ptr<shard::Shard> find_shard(const std::string& name) const { return checkpoint_tables_.find_shard(name); }
  /// This server's parts of all tables.
  std::vector<std::shared_ptr<shard::Shard>> parts() const { return registry_.parts(); }
  /// For a copy of the part.
  PartState& part_state() { return part_state_; }
  const PartState& part_state() const { return part_state_; }
  /// Other processes that have mapped the tables must send requests from now on.
  void close_to_readers() const { registry_.for_each([](const Table& table) { if (table.shard != nullptr) table.shard->close_to_readers(); }); }
  CheckpointTables& checkpoint_tables() { return checkpoint_tables_; }
  const CheckpointTables& checkpoint_tables() const { return checkpoint_tables_; }

 private:
  template <typename Which>
  static bool is_about(const wire::Message& request, Which which);
  void cancel_held(const rpc::Asked& asked);
  bool only_reads(uint32_t number, bool gated) const;
  bool only_waits(uint32_t number) const;
  bool may_lack_memory(uint32_t number) const;
  void lose(Table& table, const base::Status& why);

  rpc::Server& rpc_;
  bool any_gone_ = false;  ///< lose_without_backups(), lose_all()
  RequestClock clock_;
  Roster roster_;
  HeldRequests held_;
  WithheldParts withheld_;
  Refusals refusals_;
  Applier applier_;
  Merger merger_;
  Answers answers_;
  GateDecisions decisions_;
  Registry registry_;
  Changes changes_;
  UntoldLosses losses_;
  Gets gets_;
  ManyRequests many_requests_;
  Creations creations_;
  Beginnings beginnings_;
  Queries queries_;
  StateTransfers state_transfers_;
  PartState part_state_;
  CheckpointTables checkpoint_tables_;
  TableStatus status_;
};

}  // namespace mv::table
