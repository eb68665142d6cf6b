#pragma once
// The server's side of tables: registers, stores and serves this server's parts.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "base/names.hpp"
#include "base/pool.hpp"
#include "checkpoint/part_file.hpp"
#include "codec/codec.hpp"
#include "engine/cluster/view.hpp"
#include "engine/rpc/server.hpp"
#include "engine/table/client/requests.hpp"
#include "engine/table/gates/gate_log.hpp"
#include "engine/table/gates/merge_gate.hpp"
#include "engine/table/gates/stale_gate.hpp"
#include "engine/table/gates/sync_gate.hpp"
#include "engine/table/spec_wire.hpp"
#include "engine/table/state.hpp"
#include "shard/shard.hpp"

namespace mv::table {

/// Tables by number. Answers table requests (Create … Got) through rpc. Loop thread only; callers' threads may also use
/// the shards themselves (Shard is thread-safe).
class Server {
 public:
  Server(const base::Clock& clock, rpc::Server& rpc, base::Pool& pool, bool shares_memory)
      : clock_(clock), rpc_(rpc), pool_(pool), shares_memory_(shares_memory) {}

  /// Call it once, before any request: sets the workers, and which of the servers this is. The cluster engine owns the
  /// view.
  void start(const cluster::View& view, base::Peer self);
  void worker_finished(base::Peer worker);
  void worker_lost(base::Peer worker, const base::Status& why);
  /// The worker replaces a lost one. The tables that it creates again exist as they are.
  void worker_joined(base::Peer worker);

  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                  const base::SinkRef& staged);
  void on_data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged);
  void on_cancel(const rpc::Asked& asked);

  /// The requests that wait here, and the workers that they wait for.
  std::vector<cluster::Wait> waits() const;
  std::vector<TableState> states() const;

  /// This server's part of a table, for callers' threads of the same process.
  std::shared_ptr<shard::Shard> shard(uint32_t number) const;

  /// This server's parts of all tables.
  std::vector<std::shared_ptr<shard::Shard>> parts() const;
  /// The number of requests that the gates hold.
  uint64_t held() const { return held_.size() + wanted_.size(); }
  GateLog& gate_log() { return gate_log_; }
  const GateLog& gate_log() const { return gate_log_; }

  // ---- for checkpoints; `clocks` by table, otherwise this server's own

  uint64_t servers() const { return servers_; }
  uint64_t index() const { return index_; }
  /// The entries of all complete tables.
  std::vector<checkpoint::TableEntry> entries(const std::map<std::string, uint64_t>& clocks) const;
  base::Result<std::vector<checkpoint::SavedTable>> snapshot(const std::map<std::string, uint64_t>& clocks);
  /// Whether a table of a checkpoint is one of these tables, or can become one.
  base::Status fits(const shard::Spec& spec) const;
  std::shared_ptr<shard::Shard> find_shard(const std::string& name) const;
  base::Result<std::shared_ptr<shard::Shard>> make_shard(shard::SpecRef spec) const;
  /// A shard that no other process will map.
  base::Result<std::shared_ptr<shard::Shard>> make_hidden_shard(const shard::Spec& spec) const;
  /// Adds a new table. All workers that create it find it with its values.
  base::Status adopt(const shard::Spec& spec, std::shared_ptr<shard::Shard> shard);
  /// Sets the clock of all workers. False if the table with this part is gone, even if another one has its name now.
  bool restart_clock(const std::string& name, const shard::Shard& part, uint64_t clock);

 private:
  static constexpr uint32_t kNoTable = UINT32_MAX;

  /// A gated change: what to do when its turn has come, and its payload if that has arrived.
  struct Held {
    uint64_t first, count, rows;
    std::span<const std::byte> payload;
    std::shared_ptr<const void> keep;                ///< the payload's memory, if it outlives the call
    wire::Write write = wire::Write::Add;
    shard::ChangePart piece = shard::ChangePart::kFirst;
    std::shared_ptr<const shard::UpdaterSpec> updater = {};  ///< instead of values
    codec::CodecRef codec = {};                      ///< the encoding of the payload, or null
    base::Nanos since{0};                            ///< when it came; only in held_
    uint32_t table = 0;                              ///< its table's number; only in held_
  };
  struct Wanted {
    uint64_t first, count;
    std::vector<int64_t> ids;
    base::Nanos since{0};  ///< when it came; only in wanted_
    uint32_t table = 0;    ///< its table's number; only in wanted_
    codec::CodecRef codec = {};  ///< the encoding of the answer, or null
  };
  /// Transfers of a table's states to a worker (Reading), and of the states of some rows from a worker (Writing).
  struct Reading {
    std::unique_ptr<shard::Snapshot> snapshot;
    shard::Rows rows = {};   ///< the rows whose states are being sent
    size_t state = 0;        ///< the next of their states
    uint64_t chunk = 0;
  };
  struct Writing {
    uint64_t first = 0, count = 0;
    std::vector<std::vector<std::byte>> states;
  };
  struct Table final : SyncGate::Owner, StaleGate::Owner, MergeGate::Owner {
    Table(Server& server, uint32_t number, shard::SpecRef described, shard::Consistency consistency)
        : server(server),
          number(number),
          shared_spec(std::move(described)),
          spec(*shared_spec),
          consistency(consistency),
          merge_gate(*this, this->spec.name) {
      if (consistency == shard::Consistency::kSync) gate = std::make_unique<SyncGate>(*this, this->spec.name);
      if (consistency == shard::Consistency::kStale || consistency == shard::Consistency::kAsync)
        stale = std::make_unique<StaleGate>(*this, this->spec.name, static_cast<uint64_t>(std::max<int64_t>(0, this->spec.staleness)));
    }
    void apply_change(const rpc::Asked& asked) override;
    void grant_change(const rpc::Asked& asked) override;
    void serve_get(const rpc::Asked& asked) override;
    void serve_stale(const rpc::Asked& asked) override { serve_get(asked); }
    void merge(std::span<const rpc::Asked> parts) override;
    void accept(const rpc::Asked& asked) override;
    void on_merged() override { publish_clock(); }
    void fail_gated(const rpc::Asked& asked, const base::Status& why) override;
    base::Result<codec::CodecRef> codec_of(const wire::Codec* wanted, uint64_t rows) const;
    /// Only the gate of the table's consistency knows the workers. StaleGate keeps the clocks of asynchronous tables,
    /// too.
    uint64_t clock_of(size_t worker) const {
      return consistency == shard::Consistency::kMerge ? merge_gate.next_round(worker) : consistency == shard::Consistency::kSync ? 0 : stale->clock_of(worker);
    }
    void finished(size_t worker);
    void lost(size_t worker, const base::Status& why);
    uint64_t bytes_of(const Held& held) const;
    void publish_clock();

    /// The size of the fields that requests for many tables use: they lie together, at the beginning.
    size_t hot_bytes() const { return static_cast<size_t>(reinterpret_cast<const std::byte*>(&creators) - reinterpret_cast<const std::byte*>(this)); }

    Server& server;
    const uint32_t number;
    const shard::SpecRef shared_spec;
    const shard::Spec& spec;
    const shard::Consistency consistency;
    bool complete = false;
    bool wants_initial = false;                 ///< a worker was given an initial value; only worker 0's counts
    std::shared_ptr<shard::Shard> shard;
    base::Status broken;                        ///< creation failed; kept until every worker was notified
    base::Nanos moved{0};                       ///< when a wait on this table last ended
    MergeGate merge_gate;                       ///< Consistency::kMerge
    std::map<base::Peer, base::Status> lost_rounds;  ///< of workers whose acknowledged adds could not be merged: for their next get or add
    std::vector<base::Peer> creators, told;     ///< short lists: most clusters are small, and tables many
    std::vector<rpc::Asked> ready;              ///< Ready requests that wait until all workers are ready
    // Only the gate of the table's consistency is allocated, since stores have very many tables. Merging needs neither.
    std::unique_ptr<SyncGate> gate;    ///< Consistency::kSync
    std::unique_ptr<StaleGate> stale;  ///< Consistency::kStale and kAsync
  };

  /// The answer to a GetMany while its parts are collected.
  struct ManyGet {
    base::Pool::Block values;
    std::vector<uint32_t> at;  ///< offset of each part's values
  };
  /// A worker that waits until the tables of a creation are complete.
  struct Readying {
    base::Nanos since;
    std::vector<uint32_t> tables;
    size_t missing = 0;  ///< tables that are not complete
  };

  void create(const rpc::Asked& asked, const wire::Create& request, std::span<const std::byte> payload);
  uint32_t number_of(std::string_view name);
  base::Status check_creation(const rpc::Asked& asked, const wire::Create& request, std::span<const shard::Spec> specs,
                              std::span<const uint32_t> numbers) const;
  base::Status take_initial(const wire::Create& request, std::span<const uint32_t> numbers, std::span<const std::byte> payload);
  void give_up(const rpc::Asked& asked, const wire::GiveUp& request);
  void give_up(base::Peer client, std::span<const uint32_t> numbers, const base::Status& why);
  void ready(const rpc::Asked& asked, const wire::Ready& request);
  void end_readying(const rpc::Asked& asked, const base::Status& status);
  void settle_creation(uint32_t number);
  void break_creation(uint32_t number, const base::Status& why);
  void forget_if_all_told(uint32_t number);
  void cancel_creation(const rpc::Asked& asked);
  void open(const rpc::Asked& asked, const wire::Open& request);
  void list(const rpc::Asked& asked);
  void destroy(const rpc::Asked& asked, const wire::Destroy& request);
  void change(const rpc::Asked& asked, const wire::Change& request, std::span<const std::byte> payload, const base::SinkRef& staged);
  void get(const rpc::Asked& asked, const wire::Get& request, std::span<const std::byte> payload);
  void change_many(const rpc::Asked& asked, const wire::ChangeMany& request, std::span<const std::byte> payload, const base::SinkRef& staged);
  void get_many(const rpc::Asked& asked, const wire::GetMany& request);
  void give_part(const rpc::Asked& asked, Table& table);
  void expect(const flatbuffers::Vector<uint32_t>& numbers, uint32_t at) const;
  base::Nanos now() const { return moment_ ? *moment_ : clock_.now(); }
  /// Freezes now() while it lives: reading the clock costs as much as a part of a request for many tables.
  struct OneMoment {
    explicit OneMoment(Server& server) : server(server) { server.moment_ = server.clock_.now(); }
    OneMoment(const OneMoment&) = delete;
    OneMoment& operator=(const OneMoment&) = delete;
    ~OneMoment() { server.moment_.reset(); }
    Server& server;
  };
  void cancel_waiting(const rpc::Asked& asked);
  void got(const rpc::Asked& asked, const wire::Got& request);
  void clock(const rpc::Asked& asked, const wire::Clock& request);
  void set_updater(const rpc::Asked& asked, const wire::SetUpdater& request);
  void stat(const rpc::Asked& asked, const wire::Stat& request);
  void scan(const rpc::Asked& asked, const wire::Scan& request);
  void states(const rpc::Asked& asked, const wire::States& request);
  bool answer_states(const rpc::Asked& asked, Table& table, Reading& reading);
  void set_states(const rpc::Asked& asked, const wire::SetStates& request, std::span<const std::byte> payload);
  void forget_transfers(base::Peer worker);

  int64_t worker_id(base::Peer peer) const;
  void name_workers();
  Table* find(const rpc::Asked& asked, uint32_t number);
  Table* find_sound(const rpc::Asked& asked, uint32_t number);
  base::Status check_range(const Table& table, uint64_t first, uint64_t count, uint64_t rows) const;
  base::Result<std::vector<int64_t>> take_rows(const Table& table, std::span<const std::byte> payload, uint64_t rows) const;
  base::Status apply(Table& table, base::Peer client, const Held& held);
  void change_in_order(const rpc::Asked& asked, Table& table, Held held);
  void change_merged(const rpc::Asked& asked, Table& table, size_t worker, uint64_t index, uint32_t chunks, Held held);
  base::Status apply_merged(Table& table, std::span<const rpc::Asked> parts);
  void hold(Held& held, std::span<const std::byte> payload, const std::shared_ptr<const void>& staged);
  base::Status apply_encoded(const Table& table, shard::Worker worker, const Held& held);
  base::Status sum_up(const Table& table, std::span<const Held* const> parts, uint64_t first, uint64_t count, base::Pool::Block* sum);
  base::Status add_sum(Table& table, std::span<const Held* const> parts, shard::Range elements, shard::ChangePart piece);
  base::Status apply_elements(Table& table, std::span<const Held* const> parts);
  void reply_values(const rpc::Asked& asked, Table& table, const Wanted& wanted);
  base::Pool::Block encode_values(const Table& table, const Wanted& wanted, const base::Pool::Block& values);
  /// @param shard null: a new one
  std::unique_ptr<Table> make_table(shard::SpecRef spec, std::shared_ptr<shard::Shard> shard = nullptr);
  uint32_t add_table(std::unique_ptr<Table> table);
  uint64_t saved_clock(const Table& table, const std::map<std::string, uint64_t>& clocks) const;
  void answer_created(const rpc::Asked& asked, std::span<const uint32_t> numbers, const shard::Spec* opened = nullptr);
  std::vector<const Table*> complete_tables() const;

  void held_back(Table& table, const rpc::Asked& asked, Held held);
  void drop(uint32_t number);
  void fail_waiting(uint32_t number, const base::Status& why);
  base::Nanos since(const rpc::Asked& asked) const;
  void add_gate_waits(const Table& table, std::vector<cluster::Wait>& waits) const;
  std::string missing_creators(const Table& table) const;

  const base::Clock& clock_;
  std::optional<base::Nanos> moment_;
  rpc::Server& rpc_;
  base::Pool& pool_;
  wire::FrameBuilder builder_;
  const cluster::View* view_ = nullptr;
  std::vector<base::Peer> workers_;        ///< by worker id
  WorkerNames worker_names_;               ///< as of the arrival of the last worker
  std::set<base::Peer> active_;
  std::unordered_map<base::Peer, size_t> worker_ids_;
  bool sync_ = false;                      ///< the node's mode, for tables that don't set their own
  uint64_t servers_ = 0, index_ = 0;       ///< the number of servers, and the index of this one
  const bool shares_memory_;               ///< other processes of this machine may map the shards
  const std::shared_ptr<shard::Families> families_ = std::make_shared<shard::Families>();
  const std::shared_ptr<shard::PlainModels> models_ = shard::make_plain_models();
  std::vector<std::unique_ptr<Table>> tables_;  ///< by number; null once destroyed
  base::NameMap<uint32_t> by_name_;  ///< keys point to the tables' names
  uint32_t last_named_ = 0;                     ///< see number_of()
  std::map<rpc::Asked, Readying> readying_;
  /// Requests that wait at the gates of all tables: the cost of a look-up must not depend on the number of tables.
  Requests<Held> held_;
  Requests<Wanted> wanted_;
  std::unordered_map<rpc::Asked, ManyGet, rpc::Asked::Hash> many_gets_;
  std::map<std::pair<base::Peer, uint32_t>, Reading> reading_;  ///< by worker and table
  std::map<std::pair<base::Peer, uint32_t>, Writing> writing_;
  GateLog gate_log_;
};

}  // namespace mv::table
