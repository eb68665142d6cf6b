#pragma once
// The workers' side of tables: cuts calls into messages, and combines the answers.

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/histogram.hpp"
#include "base/names.hpp"
#include "base/pool.hpp"
#include "base/trace.hpp"
#include "engine/cluster/view.hpp"
#include "engine/rpc/client.hpp"
#include "engine/table/client/operation.hpp"
#include "engine/table/client/plan.hpp"
#include "engine/table/state.hpp"

namespace mv::table {

/// Loop thread only. Completion callbacks may call back into this object.
class Client {
 public:
  Client(const base::Clock& clock, rpc::Client& rpc, base::Pool& pool) : clock_(clock), rpc_(rpc), pool_(pool) {}
  ~Client();

  /// Call it once the ranks are known. The cluster engine owns the view.
  void start(const cluster::View& view);

  void begin(Request request);
  /// A fire-and-forget change of one message: `frame` is a Change without counts, for server `server`. Releases
  /// `reserved` at its end.
  void begin_small(const TableViewRef& table, size_t server, base::Frame frame, uint64_t reserved);
  /// Fire-and-forget adds of all elements of some tables that lie whole on one server, in one message. The callers have
  /// counted each in open_changes.
  struct ManyAdds {
    size_t server = 0;
    std::vector<TableViewRef> tables;
    base::PayloadRef values;  ///< of one table after the other
    uint64_t reserved = 0;
  };
  void add_many(ManyAdds adds);
  /// Payload bytes of asynchronous calls in flight. Callers on any thread add to it; a call that is over subtracts its
  /// own.
  std::atomic<uint64_t>& in_flight() { return in_flight_; }
  uint64_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  /// By name; the keys point into the views.
  using Tables = base::NameMap<TableViewRef>;
  const Tables& tables() const { return tables_; }
  /// The durations of calls other than fire-and-forget ones, by Use, since take_times().
  const std::array<base::Histogram, kUseNames.size()>& call_times() const { return call_times_; }
  /// Also records them in `trace`.
  void take_times(base::TraceRing& trace) { trace_ = &trace; }
  struct NewTable {
    shard::SpecRef spec;
    base::PayloadRef initial = nullptr;  ///< worker 0 only, else null; lent until `created` is called
    bool given = false;                  ///< whether this worker was given an initial value, even one that does not count
  };
  using Created = std::function<void(base::Result<std::vector<TableViewRef>>)>;
  /// Creates tables collectively, in one operation: all of them or none.
  void create(std::vector<NewTable> tables, base::Nanos deadline, Created created);
  /// Ends the creation of this table, as if its deadline had passed.
  void give_up_creation(const std::string& name);
  using Opened = std::function<void(base::Result<TableViewRef>)>;
  void open(const std::string& name, base::Nanos deadline, Opened opened);
  void list(base::Nanos deadline, std::function<void(base::Result<std::vector<shard::Spec>>)> listed);
  void destroy(const TableViewRef& table, base::OperationRef operation);

  /// This worker has begun its clock-th iteration. Ordered like a change; flushes wait for it. Errors are reported like
  /// those of fire-and-forget adds.
  void clock(const TableViewRef& table, uint64_t clock);
  /// This worker's clock on each of its tables; set_clock() is for a loaded checkpoint.
  std::map<std::string, uint64_t> clocks() const;
  void set_clock(const std::string& table, uint64_t clock);
  /// Ordered like a change; `skip` is a server that the caller has served itself. The caller counts it in open_changes.
  void set_updater(const TableViewRef& table, const shard::UpdaterSpec& updater, size_t skip, base::OperationRef operation);
  void stat(const TableViewRef& table, base::Nanos deadline, std::function<void(base::Result<TableStats>)> told);
  /// A chunk of the rows that one server stores. `values`: room for as many rows as `rows`, or empty.
  struct Chunked {
    uint64_t found = 0;
    int64_t next = -1;
  };
  void scan(const TableViewRef& table, size_t server, int64_t cursor, std::span<int64_t> rows, std::span<std::byte> values,
            base::Nanos deadline, std::function<void(base::Result<Chunked>)> told);

  /// A chunk of the updater's states of a server's part: one state of some rows. With `states` 0 it holds only the
  /// updater and its progress.
  struct StatesChunk {
    uint64_t first = 0, count = 0;
    uint32_t state = 0, states = 0;
    std::vector<std::byte> values;  ///< of the storage dtype
    shard::UpdaterSpec updater;
    shard::Mark mark;
  };
  static constexpr uint64_t kNoMoreStates = UINT64_MAX;
  /// Ask for chunk 0, 1 and so on, until one has no states; kNoMoreStates ends the transfer early.
  void states(const TableViewRef& table, size_t server, uint64_t chunk, base::Nanos deadline,
              std::function<void(base::Result<StatesChunk>)> told);
  /// Send the states of some rows one after the other, and finally the mark.
  void set_states(const TableViewRef& table, size_t server, const StatesChunk& chunk, base::Nanos deadline,
                  std::function<void(base::Result<bool>)> told);
  /// Sends a command to all servers. Each server's controller executes it once; the operation ends when all have.
  void command(int64_t head, const std::string& body, base::OperationRef operation);

  /// Calls `passed` once all changes begun so far are applied or have failed, with the first error that was not
  /// reported.
  void flush(std::function<void(const base::Status&)> passed);
  /// Takes the first unreported error of this table's fire-and-forget adds.
  base::Status take_untold(TableView& table);
  /// Reports an error of a call that its caller has released, like that of a fire-and-forget add. `table` is null if
  /// the call was on none.
  void tell_later(TableView* table, const base::Status& error);

  /// The calls that callers wait for, and the servers that have not answered.
  std::vector<cluster::Wait> waits(base::Peer self) const;
  /// This worker's own calls on its tables.
  std::vector<TableState> states(uint32_t worker) const;

  base::Nanos next_deadline() const { return deadlines_.empty() ? base::kNever : deadlines_.begin()->first; }
  void tick();

 private:
  struct TableCall;
  class Chunk;
  class Gather;
  class SmallChange;
  class ManyChange;
  class Round;
  class Creation;
  using TableCallRef = std::shared_ptr<TableCall>;
  struct Flush {
    uint64_t before;
    std::function<void(const base::Status&)> passed;
  };

  void know(TableView& table) const;
  void remember(const TableViewRef& table);
  void take_clock(const TableViewRef& table, const std::vector<uint64_t>& clocks);
  void send_change(const TableCallRef& op, const std::shared_ptr<Chunk>& chunk, bool again = false);
  void send_get(const TableCallRef& op, const std::shared_ptr<Chunk>& chunk);
  base::Frame many_frame(const TableCall& op);
  base::Frame change_frame(const Chunk& chunk, bool offer);
  base::PayloadRef payload_of(const TableCall& op, const ChunkRange& piece);
  static void set_order(rpc::Call& call, const TableView& table, size_t server, int64_t priority = 0);
  void chunk_done(const TableCallRef& op, Chunk& chunk, const base::Status& status);
  void settle(const TableCallRef& op);
  void complete(const TableCallRef& op, const base::Status& status);
  void expire(const TableCallRef& op);
  void drop_get(const TableCallRef& op, const base::Status& status);
  void withdraw(const TableCallRef& op, mv_status code);
  void tell_loss(const TableCallRef& op);
  void drop_rest_of_call(const TableCall& op);
  void withdraw_change(const TableCallRef& op, mv_status code);
  void note_time(const TableCall& op);
  void send_withdrawn_again(const TableCallRef& op);
  void send_again(const TableCallRef& op, const std::vector<std::shared_ptr<Chunk>>& again);
  void leave_behind(const TableCallRef& op, mv_status code);
  void revert_counts(TableCall& op);
  void send_got(const TableCall& op);
  void change_over(TableView& table, uint64_t id);
  void change_over(uint64_t id);
  void note_untold(TableView& table, const base::Status& status);
  void pass_fences();
  std::string waiting_for(const TableCall& op) const;

  const base::Clock& clock_;
  rpc::Client& rpc_;
  base::Pool& pool_;
  wire::FrameBuilder builder_;
  const cluster::View* view_ = nullptr;
  const std::shared_ptr<std::vector<base::Peer>> shared_servers_ = std::make_shared<std::vector<base::Peer>>();
  std::vector<base::Peer>& servers_ = *shared_servers_;
  Tables tables_;  ///< so that all handles share the counters
  base::NameSet creating_;  ///< keys point to the names in `creations_`
  std::vector<std::shared_ptr<Creation>> creations_;
  std::list<TableCallRef> waited_for_;
  std::multimap<base::Nanos, std::function<void()>> deadlines_;
  uint64_t next_change_ = 0, first_change_ = 0;  ///< changes are numbered as they begin
  std::deque<bool> changes_over_;                ///< for first_change_ and the changes after it
  std::deque<Flush> flushes_;
  base::Status untold_;
  bool any_untold_ = false;  ///< since the last flush
  std::atomic<uint64_t> in_flight_{0};
  std::array<base::Histogram, kUseNames.size()> call_times_;
  base::TraceRing* trace_ = nullptr;  ///< null: times are not taken
};

}  // namespace mv::table
