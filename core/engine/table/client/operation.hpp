#pragma once
// A caller's request, as the engine executes it.

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/filling.hpp"
#include "base/names.hpp"
#include "base/operation.hpp"
#include "codec/codec.hpp"
#include "engine/rpc/pending.hpp"
#include "engine/table/client/uses.hpp"
#include "shard/shard.hpp"
#include "wire/frame.hpp"

namespace mv::table {

/// A worker's counts of its calls on a table, see Clock and Begin in wire/polyverso.fbs.
struct Counts {
  uint64_t clock = 0;
  uint64_t gets = 0, adds = 0;  ///< sync
  bool operator==(const Counts&) const = default;
  /// The later point of two.
  friend Counts later(const Counts& a, const Counts& b) { return {std::max(a.clock, b.clock), std::max(a.gets, b.gets), std::max(a.adds, b.adds)}; }
};

/// A table as its clients know it. All handles of this node on the table share it. `spec`, `consistency`, `servers` and
/// `numbers` are fixed. Atomic members are for any thread, all others for the loop thread.
struct TableView {
  TableView(shard::SpecRef of, std::shared_ptr<const std::vector<base::Peer>> by_id)
      : numbers(by_id->size(), kNoNumber), shared_spec(std::move(of)), spec(*shared_spec), shared_servers(std::move(by_id)), servers(*shared_servers) {}

  static constexpr uint32_t kNoNumber = UINT32_MAX;
  // The fields that calls on many tables use come first, and together.
  std::atomic<uint64_t> clock{0};   ///< this worker's iterations, see mv_table_clock(); in a merging table, its adds that have begun
  std::atomic<uint64_t> adds_at_get{0};  ///< sync: `index` at the last get; in a merging table, `clock`
  /// Changes that callers have started and servers have not acknowledged. While there are none, the servers' state
  /// contains all that this worker has done.
  std::atomic<uint64_t> open_changes{0};
  std::atomic<bool> has_untold{false};  ///< any thread
  bool is_newcomer = false;         ///< this worker has joined later, and has not begun on this table: its counts begin with 0
  shard::Consistency consistency = shard::Consistency::kAsync;
  std::vector<uint32_t> numbers;    ///< the table's number on each server; kNoNumber: not known yet
  const shard::SpecRef shared_spec;
  const shard::Spec& spec;
  const std::shared_ptr<const std::vector<base::Peer>> shared_servers;
  const std::vector<base::Peer>& servers;  ///< by server id
  uint64_t queue = 0;                ///< small keys of one store share a queue, which keeps the order of their calls; 0: only this table's
  uint64_t round = 0;               ///< sync: gets of this worker so far
  uint64_t index = 0;               ///< sync: adds of this worker so far
  /// The adds in these counts of a table with counted calls. A merging table's clock counts them.
  uint64_t adds(const Counts& counts) const { return consistency == shard::Consistency::kSync ? counts.adds : counts.clock; }
  /// This worker's clock. Callers' threads count `clock`; where a newcomer begins is only known later.
  uint64_t now() const { return clock.load(std::memory_order_acquire) + clock_base.load(std::memory_order_acquire); }
  bool has_left = false;            ///< this worker has left the rounds
  Counts first;                     ///< where this worker has begun
  std::atomic<uint64_t> clock_base{0};  ///< stale-synchronous: see now()
  uint64_t told_clock = 0;          ///< stale-synchronous: the last value of `clock` that the loop has seen
  base::Status untold;              ///< of a fire-and-forget add that failed; taken by OpenChanges::take_untold()
  TableUses uses;
};
using TableViewRef = std::shared_ptr<TableView>;

/// Counts a change as open; the end of the change uncounts it. Without keep(), no change has begun, and the destructor
/// uncounts it.
class OpenChange {
 public:
  explicit OpenChange(TableView& table) : table_(table) { table_.open_changes.fetch_add(1, std::memory_order_relaxed); }
  ~OpenChange() {
    if (!kept_) table_.open_changes.fetch_sub(1, std::memory_order_release);
  }
  void keep() const { kept_ = true; }

 private:
  TableView& table_;
  mutable bool kept_ = false;
};

/// By name; the keys point into the views.
using TablesByName = base::NameMap<TableViewRef>;

enum class OpKind { kChange, kGet };

/// A table's use of memory on all servers, and the current updater of its adds.
struct TableStats {
  shard::Usage usage;
  shard::UpdaterSpec updater;
};

/// A table of a get of many, and the place of its values.
struct ManyPart {
  TableViewRef table;
  std::span<std::byte> destination;
  uint64_t clock = 0;           ///< set by the engine
  bool is_provisional = false;  ///< see TableCall::is_provisional
};

/// A caller's request.
struct Request {
  TableViewRef table;
  OpKind kind = OpKind::kGet;
  wire::Write write = wire::Write::Add;
  bool gated = true;                      ///< gets: waits for its turn if the table's consistency requires it (false: a peek)
  uint64_t clock = 0;                     ///< gets: this worker's clock at the call
  bool all = true;                        ///< all rows, else those of `rows`
  std::vector<int64_t> rows;
  size_t skip = SIZE_MAX;                 ///< a server that the caller serves itself
  bool waits_only = false;                ///< gated gets of no row: all servers answer once their gates would serve
  base::PayloadRef source;                ///< changes: the caller's values, lent or owned
  std::shared_ptr<const base::Filling> filling = {};  ///< changes of all elements without a codec: `source` is still being copied
  codec::CodecRef codec;                  ///< adds of all elements: the encoding of `source`, see place_encoded(); gets: that of the answers
  bool keeps_encoded = false;             ///< gets through a codec: `destination` takes the encoded pieces, see place_answers()
  int64_t priority = 0;                   ///< among this worker's queued calls on other tables
  std::span<std::byte> destination;       ///< gets: the caller's memory
  std::vector<ManyPart> many;             ///< a get of several tables that lie whole on `server`; `table` is the first of them
  size_t server = 0;
  base::OperationRef operation;           ///< null for fire-and-forget
  uint64_t reserved = 0;                  ///< bytes of Client::in_flight() to release when the call has ended
};

}  // namespace mv::table
