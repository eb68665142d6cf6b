#pragma once
// The workers' side of tables: cuts calls into messages, and combines the answers.

#include <array>
#include <atomic>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/histogram.hpp"
#include "base/trace.hpp"
#include "engine/table/client/catalogue.hpp"
#include "engine/table/client/entry.hpp"
#include "engine/table/client/inquiries.hpp"
#include "engine/table/client/open_changes.hpp"
#include "engine/table/client/operation.hpp"
#include "engine/table/client/plan.hpp"
#include "engine/table/client/servers.hpp"
#include "engine/table/state.hpp"
#include "wire/form.hpp"

namespace mv::table {

/// The common form of the small changes in one message. A change by rows consists of the ids of `rows` rows, in the
/// server's numbering, and their values; any other change of the values alone.
struct SmallForm {
  size_t server = 0;
  wire::Write write = wire::Write::Add;
  uint64_t count = 0;  ///< elements of the whole table; 0: rows
  uint64_t rows = 0;
  uint64_t bytes = 0;  ///< of one change
  bool operator==(const SmallForm&) const = default;
};

/// Loop thread only. Completion callbacks may call back into this object.
class Client {
 public:
  /// See Servers.
  Client(const base::Clock& clock, rpc::Client& rpc, rpc::Client& processes, base::Pool& pool);
  ~Client();

  /// To be called once, when the ranks are known. The cluster engine owns the view.
  void start(const cluster::View& view, base::Peer self = base::kNobody) {
    servers_.start(view);
    entry_.start(self);
  }

  void begin(Request&& request);
  /// Sends fire-and-forget changes of one form in one message. Releases `reserved` at the end of the message. The
  /// callers have counted the message, not each change, in open_changes.
  void begin_small(const TableViewRef& table, const SmallForm& form, base::PayloadRef changes, uint64_t reserved);
  /// Sends fire-and-forget adds of all elements of several tables, each of which is on one server completely, in one
  /// message. The callers have counted each add in open_changes.
  struct ManyAdds {
    size_t server = 0;
    std::vector<TableViewRef> tables;
    base::PayloadRef values;  ///< of one table after another
    uint64_t reserved = 0;
  };
  void add_many(ManyAdds adds);
  /// Payload bytes of asynchronous calls in flight. Callers add to it on any thread; a call that ends subtracts its own
  /// bytes.
  std::atomic<uint64_t>& in_flight() { return in_flight_; }
  uint64_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }
  Catalogue& catalogue() { return catalogue_; }
  const Catalogue& catalogue() const { return catalogue_; }
  Inquiries& inquiries() { return inquiries_; }
  OpenChanges& changes() { return changes_; }
  Entry& entry() { return entry_; }
  /// The durations of calls other than fire-and-forget ones, by Use, since take_times().
  const std::array<base::Histogram, kUseNames.size()>& call_times() const { return call_times_; }
  /// Also records them in `trace`.
  void take_times(base::TraceRing& trace) { trace_ = &trace; }

  /// The calls that callers wait for, and the servers that have not answered.
  std::vector<cluster::Wait> waits(base::Peer self) const;
  /// This worker's own calls on its tables.
  std::vector<TableState> states(uint32_t worker) const;

  base::Nanos next_deadline() const { return servers_.next_deadline(); }
  void tick() { servers_.tick(); }

 private:
  struct TableCall;
  class Chunk;
  class SmallChange;
  class ManyChange;
  using TableCallRef = std::shared_ptr<TableCall>;

  void count(TableCall& op);
  void send(const TableCall& op, size_t server, rpc::Call&& call);
  void send_change(const TableCallRef& op, const std::shared_ptr<Chunk>& chunk, bool again = false);
  void send_get(const TableCallRef& op, const std::shared_ptr<Chunk>& chunk);
  base::Frame many_frame(const TableCall& op);
  base::Frame get_frame(const Chunk& chunk);
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
  std::string waiting_for(const TableCall& op) const;

  Servers servers_;
  const wire::Form<wire::Change> change_form_;
  const wire::Form<wire::Get> get_form_;
  Catalogue catalogue_{servers_, changes_, *this};
  OpenChanges changes_{catalogue_.tables()};
  Inquiries inquiries_{servers_};
  Entry entry_{servers_, catalogue_.tables(), [this] { return catalogue_.is_creating(); }};
  std::list<TableCallRef> waited_for_;
  std::list<TableCallRef> over_;  ///< an empty element for the next one, which saves an allocation
  std::set<std::pair<const base::Operation*, TableCall*>> parts_;  ///< those of waited_for_ that are parts of a larger operation, by that
  std::atomic<uint64_t> in_flight_{0};
  std::array<base::Histogram, kUseNames.size()> call_times_;
  base::TraceRing* trace_ = nullptr;  ///< null: times are not taken
};

}  // namespace mv::table
