#pragma once
// The server's side of tables: registers, holds and serves this server's parts.

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

/// Tables by number. Answers ps requests (Create … Got) through rpc. Loop thread only; the shards themselves may also be used
/// by callers' threads (Shard is thread-safe).
class Server {
 public:
  Server(const base::Clock& clock, rpc::Server& rpc, base::Pool& pool, bool shares_memory)
      : clock_(clock), rpc_(rpc), pool_(pool), shares_memory_(shares_memory) {}

  /// Once, before any request: who the workers are, and which of the servers this is. The view stays the cluster engine's.
  void start(const cluster::View& view, base::Peer self);
  void worker_finished(base::Peer worker);
  void worker_lost(base::Peer worker, const base::Status& why);
  /// In the place of a lost one. What it creates again it finds as it is.
  void worker_joined(base::Peer worker);

  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                  const base::SinkRef& staged);
  void on_data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged);
  void on_cancel(const rpc::Asked& asked);

  /// Whose requests wait here, and for whom.
  std::vector<cluster::Wait> waits() const;
  std::vector<TableState> states() const;

  /// This server's part of a table, for the callers' threads of the same process.
  std::shared_ptr<shard::Shard> shard(uint32_t number) const;

  /// This server's parts of all tables.
  std::vector<std::shared_ptr<shard::Shard>> parts() const;
  /// How many requests the gates hold.
  uint64_t held() const { return held_.size() + wanted_.size(); }
  GateLog& gate_log() { return gate_log_; }
  const GateLog& gate_log() const { return gate_log_; }

  // ---- for checkpoints; `clocks` by table, else this server's own

  uint64_t servers() const { return servers_; }
  uint64_t index() const { return index_; }
  /// All tables that are complete.
  std::vector<checkpoint::TableEntry> entries(const std::map<std::string, uint64_t>& clocks) const;
  base::Result<std::vector<checkpoint::SavedTable>> snapshot(const std::map<std::string, uint64_t>& clocks);
  /// Whether a table of a checkpoint is, or can become, one of these.
  base::Status fits(const shard::Spec& spec) const;
  std::shared_ptr<shard::Shard> find_shard(const std::string& name) const;
  base::Result<std::shared_ptr<shard::Shard>> make_shard(shard::SpecRef spec) const;
  /// One that no other process will map.
  base::Result<std::shared_ptr<shard::Shard>> make_hidden_shard(const shard::Spec& spec) const;
  /// A new table, which all workers that create it find with its values.
  base::Status adopt(const shard::Spec& spec, std::shared_ptr<shard::Shard> shard);
  /// All workers stand at this clock. False if the table with this part is gone, whatever has its name now.
  bool restart_clock(const std::string& name, const shard::Shard& part, uint64_t clock);

 private:
  static constexpr uint32_t kNoTable = UINT32_MAX;

  /// A gated change: what it will do once its turn has come, and its payload if that is here.
  struct Held {
    uint64_t first, count, rows;
    std::span<const std::byte> payload;
    std::shared_ptr<const void> keep;                ///< the payload's memory, where it outlives the call
    wire::Write write = wire::Write::Add;
    shard::ChangePart piece = shard::ChangePart::kFirst;
    std::shared_ptr<const shard::UpdaterSpec> updater = {};  ///< instead of values
    codec::CodecRef codec = {};                      ///< what the payload is encoded by, if it is
    base::Nanos since{0};                            ///< of those that wait in held_
    uint32_t table = 0;                              ///< the same: its number
  };
  struct Wanted {
    uint64_t first, count;
    std::vector<int64_t> ids;
    base::Nanos since{0};  ///< of those that wait in wanted_
    uint32_t table = 0;    ///< the same: its number
    codec::CodecRef codec = {};  ///< what the answer is to be encoded by
  };
  /// States of a table that a worker reads, and those of some rows that it writes.
  struct Reading {
    std::unique_ptr<shard::Snapshot> snapshot;
    shard::Rows rows = {};   ///< those whose states are being told
    size_t state = 0;        ///< the next of them
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
    /// Only the gate of the table's consistency knows the workers; StaleGate keeps the clocks of asynchronous tables, too.
    uint64_t clock_of(size_t worker) const {
      return consistency == shard::Consistency::kMerge ? merge_gate.next_round(worker) : consistency == shard::Consistency::kSync ? 0 : stale->clock_of(worker);
    }
    void finished(size_t worker);
    void lost(size_t worker, const base::Status& why);
    uint64_t bytes_of(const Held& held) const;
    void publish_clock();

    /// What requests for many tables look at lies together, at the beginning.
    size_t hot_bytes() const { return static_cast<size_t>(reinterpret_cast<const std::byte*>(&creators) - reinterpret_cast<const std::byte*>(this)); }

    Server& server;
    const uint32_t number;
    const shard::SpecRef shared_spec;
    const shard::Spec& spec;
    const shard::Consistency consistency;
    bool complete = false;
    bool wants_initial = false;                 ///< a worker was given an initial value; worker 0 brings the one that counts
    std::shared_ptr<shard::Shard> shard;
    base::Status broken;                        ///< creation failed; kept until every worker was told
    base::Nanos moved{0};                       ///< when something that waited here last came to its end
    MergeGate merge_gate;                       ///< Consistency::kMerge
    std::map<base::Peer, base::Status> lost_rounds;  ///< of workers whose acknowledged adds could not be merged: for their next get or add
    std::vector<base::Peer> creators, told;     ///< a few: most clusters are small, and tables many
    std::vector<rpc::Asked> ready;              ///< of Readying: waiting for the others, until all are ready
    // Only that of its consistency is used: stores have very many tables, and these take none of their memory.
    std::unique_ptr<SyncGate> gate;    ///< Consistency::kSync
    std::unique_ptr<StaleGate> stale;  ///< Consistency::kStale and kAsync
  };

  /// The answer to a GetMany, while its parts come.
  struct ManyGet {
    base::Pool::Block values;
    std::vector<uint32_t> at;  ///< where each part's are
  };
  /// A worker that waits until the tables of a creation are complete.
  struct Readying {
    base::Nanos since;
    std::vector<uint32_t> tables;
    size_t missing = 0;  ///< of them
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
  /// While it lives, now() stands still: reading the clock costs as much as a part of a request for many tables.
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
  WorkerNames worker_names_;               ///< as they were when the last of them came
  std::set<base::Peer> active_;
  std::unordered_map<base::Peer, size_t> worker_ids_;
  bool sync_ = false;                      ///< the node's mode, for tables that say nothing of their own
  uint64_t servers_ = 0, index_ = 0;       ///< how many there are, and which this is
  const bool shares_memory_;               ///< other processes of this machine may map the shards
  const std::shared_ptr<shard::Families> families_ = std::make_shared<shard::Families>();
  const std::shared_ptr<shard::PlainModels> models_ = shard::make_plain_models();
  std::vector<std::unique_ptr<Table>> tables_;  ///< by number; null once destroyed
  base::NameMap<uint32_t> by_name_;  ///< the names are the tables'
  uint32_t last_named_ = 0;                     ///< see number_of()
  std::map<rpc::Asked, Readying> readying_;
  /// Requests that wait at the tables' gates, of all tables: a look-up must not depend on how many tables there are.
  Requests<Held> held_;
  Requests<Wanted> wanted_;
  std::unordered_map<rpc::Asked, ManyGet, rpc::Asked::Hash> many_gets_;
  std::map<std::pair<base::Peer, uint32_t>, Reading> reading_;  ///< by worker and table
  std::map<std::pair<base::Peer, uint32_t>, Writing> writing_;
  GateLog gate_log_;
};

}  // namespace mv::table
