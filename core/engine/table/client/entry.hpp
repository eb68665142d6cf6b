#pragma once
// How a worker that has joined later enters the rounds of the others.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/rpc/server.hpp"
#include "engine/table/client/operation.hpp"
#include "engine/table/client/servers.hpp"

namespace mv::table {

/// Counted calls, which are adds to merging tables, and adds and gets in sync mode, form rounds of all workers, and all
/// workers make them in the same order. A worker that joins must begin at one point of this order on all tables. If one
/// table waited for it in an earlier round than another, it and the others could wait for each other for ever. The same
/// holds for the clocks of stale-synchronous tables beside such tables. (Alone they can't block each other: there it
/// begins at once, with the clock of the slowest worker.)
///
/// So before its first counted call the newcomer asks another worker, its host. The host stops just before its own next
/// call of this kind on the same table (of several adds before a get of it, before the first), and tells its counts of
/// all tables.
/// No round beyond them can end without the host, so the newcomer can begin there on all servers; then the host continues.
/// If there is no such worker, the newcomer begins where the servers are.
///
/// Meanwhile the calls of the newcomer wait here, numbered from 0; their numbers grow by the host's counts when it
/// begins. So do those of the host, for the time of a few messages.
///
/// A host that is lost or ends is replaced by another one. If the others have passed the point, or an earlier process of
/// the newcomer's place has already made its part of a round, the newcomer steps back and asks again. Loop thread only.
class Entry {
 public:
  /// @param is_creating  whether this worker creates tables, which it then knows
  Entry(Servers& servers, const TablesByName& tables, std::function<bool()> is_creating)
      : servers_(servers), tables_(tables), is_creating_(std::move(is_creating)) {}
  void start(base::Peer self) { self_ = self; }

  /// To be called before each counted call gets its number.
  void before(const TableViewRef& table, wire::Counted call) {
    if (table->is_newcomer || !asks_.empty()) before_call(table, call);
    last_added_ = call == wire::Counted::Add ? table.get() : nullptr;
  }
  /// Begins on all tables, with another worker's next call of this kind. before() does so for a program; after this, the
  /// tables have the counts with which its next calls begin. Calls `entered` at the end.
  void enter(const TableViewRef& table, wire::Counted call, std::function<void()> entered);
  /// Whether calls that come in the order of the table's counted calls wait here.
  bool keeps(const TableView& table) const {
    return (is_waiting_ && table.is_newcomer) || (stopped_for_ != base::kNobody && counts_calls(table.consistency));
  }
  /// Whether a get, which sees this worker's own changes, has to wait for those that wait here.
  bool has_kept(const TableView& table) const {
    return keeps(table) && std::ranges::any_of(kept_, [&](const Kept& kept) { return kept.call.pending != nullptr && !kept.call.wants_answer && is_on(kept, table); });
  }
  /// Keeps a call, on these tables, until it may be sent. `counted`: which counted call it is, if it is one.
  void keep(std::vector<TableViewRef> tables, base::Peer server, rpc::Call call, std::optional<wire::Counted> counted = {}) {
    kept_.push_back({std::move(tables), server, std::move(call), nullptr, counted});
  }
  /// The same for what is not one call.
  void keep(const TableViewRef& table, std::function<void()> send, std::optional<wire::Counted> counted = {}) {
    kept_.push_back({{table}, base::kNobody, {}, std::move(send), counted});
  }
  /// Removes a kept call, without finishing it. False if there is none.
  bool drop(const rpc::Pending* pending);
  /// The same, and finishes it with MV_ETIMEOUT and the reason.
  bool expire(const rpc::Pending* pending);
  /// To be called after that, if the call counts as not made. If this worker wanted to begin with it, it doesn't: the
  /// program may continue with another table.
  void given_up();
  /// The worker for which kept calls wait.
  base::Peer awaited() const { return is_waiting_ ? host_ : stopped_for_; }
  std::string reason() const;

  /// This worker knows a table from now on. `outside`: on so many servers it is a newcomer there. False: its counts are
  /// those that the servers have told.
  bool opened(const TableViewRef& table, size_t outside);
  /// A creation or opening has ended, a table was destroyed, or this worker makes no more counted calls on one.
  void tables_changed();

  void on_request(rpc::Server& by, const rpc::Asked& asked, const wire::Message& request);
  void on_cancel(rpc::Server& by, const rpc::Asked& asked);
  /// The member has left or is lost.
  void gone(base::Peer peer);

 private:
  using Then = std::function<void(const base::Status&)>;
  struct Ask {
    rpc::Asked asked;
    uint32_t table;  ///< its number on server 0
    wire::Counted call;
    int passed = 0;  ///< calls of this kind that were not the first of their step
  };
  struct Kept {
    std::vector<TableViewRef> tables;
    base::Peer server;
    rpc::Call call;
    std::function<void()> send;  ///< if not null: instead of the call
    std::optional<wire::Counted> counted = {};
  };
  /// A table, by its numbers on all servers, and where to begin.
  struct Point {
    std::vector<uint32_t> numbers;
    Counts counts;
  };

  static bool is_on(const Kept& kept, const TableView& table) { return std::ranges::find(kept.tables, &table, &TableViewRef::get) != kept.tables.end(); }
  static bool has_rounds(const TableView& table) { return counts_calls(table.consistency) || table.consistency == shard::Consistency::kStale; }
  void before_call(const TableViewRef& table, wire::Counted call);
  bool begins_step(const TableView& table, wire::Counted call, Ask& ask) const;
  base::Status why_not(const Ask& ask) const;
  void refuse();
  void stop_for(const Ask& ask);
  void go_on();
  void release();

  void ask_next();
  void read_points(std::span<const std::byte> payload);
  bool is_destroyed(const TableViewRef& table) const;
  void want_another();
  bool enter_with_kept();
  void leave_out_others();
  void tell_go_on(base::Peer host);
  void step_back(const TableViewRef& table);
  void tell(const std::vector<Point>& points, bool begin, const Then& then);
  void begin_as_host(const base::Status& status);
  void begin_everywhere();
  void begin_nowhere();
  void begin_here(std::vector<TableViewRef> tables);
  void begin_at(TableView& table, const Counts& counts);
  void over();

  Servers& servers_;
  const TablesByName& tables_;
  const std::function<bool()> is_creating_;
  base::Peer self_ = base::kNobody;
  wire::FrameBuilder builder_;
  std::deque<Kept> kept_;  ///< in their order

  // as a host
  rpc::Server* answers_ = nullptr;
  const TableView* last_added_ = nullptr;  ///< only to compare: the last counted call was an add to this table
  std::vector<Ask> asks_;
  base::Peer stopped_for_ = base::kNobody;

  // as a newcomer
  bool is_outside_ = false;  ///< it has not begun yet, and knows tables on which it is a newcomer
  bool has_begun_ = false;
  bool is_waiting_ = false;  ///< from its first counted call until it begins
  bool is_asking_ = false;   ///< the host has not answered yet
  bool is_withdrawn_ = false;  ///< the call with which it wanted to begin was given up while servers are told where it begins
  TableViewRef wanted_;
  wire::Counted wants_ = wire::Counted::Add;
  std::function<void()> entered_;
  base::Peer host_ = base::kNobody;
  std::set<base::Peer> asked_;  ///< hosts that were asked, and do not help
  uint64_t attempt_ = 0;        ///< answers to earlier ones do not count
  std::vector<Point> points_;
  std::vector<Point> back_;  ///< tables on which it steps back
  std::unordered_map<uint32_t, Counts> begun_;  ///< tables that this worker has not opened yet, by their number on server 0
};

}  // namespace mv::table
