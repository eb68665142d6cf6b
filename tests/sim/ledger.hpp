#pragma once
// The expected content of a table: exact for every reading, whatever the network did.
//
// The first elements of each stripe of each server's part are counters, one for every life of a worker. Every add also adds 1 to its
// worker's counter in each stripe that it touches. Adds of one worker are applied in order, so a counter of n means that the first n adds
// of this worker that touch the stripe are in it. Adds are atomic per stripe, so every other element must be the sum of exactly those adds.
// Acknowledged adds, and adds before a barrier, must be among them.
//
// In keyed tables each row is a stripe of its own. Some rows belong to one life of a worker, which alone changes them, and also sets and
// erases them. They have no counters, but their content must match some prefix of its changes.

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shard/shard.hpp"
#include "timeline.hpp"

namespace mv::sim {

struct TablePlan {
  shard::Spec spec;
  bool fractional = false;  ///< values that round, so that equal bits imply an equal order of additions
  int initial = 0;          ///< dense: factor of worker 0's initial values; 0: zeros
  double later_rate = 0;    ///< of sgd or dcasgd, once a worker has set it; 0: never
  // keyed tables
  std::vector<int64_t> keys;   ///< those in use
  uint64_t untouched = 0;      ///< this many at the end of the shared ones are only read
  uint64_t owned_from = 0;     ///< from this one on, each belongs to one life, in turn
  bool sets_any_time = false;  ///< sync mode: not only between barriers, so gets of the same number may differ there

  /// Its updater keeps the values that each worker last got.
  bool keeps_gets() const { return spec.updater.name == "dcasgd"; }
  /// The effect of one add of 1.
  double effect() const { return spec.updater.name == "sgd" || keeps_gets() ? -spec.updater.parameters.front() : 1; }
};

/// One change of one worker, as the ledger stores it.
struct Add {
  shard::Write write = shard::Write::Add;
  size_t by = 0;       ///< the worker's life
  size_t serial = 0;   ///< the number of its earlier changes of the table
  size_t index = 0;    ///< the number of its earlier adds, without those that had no effect
  uint64_t clock = 0;  ///< stale-synchronous tables: its worker's clock
  int amount = 0;
  bool all = true;
  std::vector<int64_t> rows;  ///< the sent rows, unless all: with the rows of the counters
  std::vector<size_t> stripes;
};
using AddRef = std::shared_ptr<Add>;

/// A get, a peek or a scan that has begun.
struct Reading {
  std::string who;
  size_t by = 0;
  bool gated = true;
  bool all = true;            ///< all elements
  std::vector<int64_t> rows;  ///< the rows; empty if dense and all
  std::vector<uint32_t> low;  ///< adds that must be visible, by stripe and worker
  size_t own = 0;             ///< own changes that must be visible: those with smaller serials
  bool exact = false;         ///< sync mode: exactly the first `index` adds of every worker
  size_t index = 0;
  uint64_t round = 0;    ///< sync mode: the number of this worker's get
  bool bounded = false;  ///< stale-synchronous: adds of clocks below `needs` must be visible
  uint64_t needs = 0;
  std::vector<uint64_t> told;  ///< by worker: the least clock that all servers know
};

class Ledger {
 public:
  Ledger(Timeline& timeline, TablePlan plan, size_t servers, size_t workers);

  const TablePlan& plan() const { return plan_; }
  /// Sync mode: workers make the same calls, so their gets of the same number are equal bit for bit.
  bool compares_bits = true;
  /// The values with which the table is created; empty if none are given.
  std::vector<std::byte> initial_values() const;

  /// Begins a new change. An add goes to all elements, or to some rows; sets and erases go to some of the worker's own rows.
  AddRef add(size_t by, Random& random, shard::Write write, bool all, uint64_t clock);
  std::vector<std::byte> values(const Add& add) const;
  void acknowledged(const Add& add);
  void not_applied(const AddRef& add);
  /// Sync mode: this worker joins the others when they have made this many adds.
  void joins(size_t by, size_t adds) { first_adds_[by] = adds; }
  /// The number of changes that this worker has begun.
  size_t begun(size_t worker) const { return begun_[worker]; }
  /// This worker's changes that are open among its first `begun` ones are now applied, or known to have no effect.
  void settled(size_t worker, size_t begun);

  /// This worker sets the later rate: its earlier adds have the first rate, its later ones the other.
  void switches(size_t by);
  /// All adds that begin from now on have the later rate.
  void switched();

  /// A worker reaches this clock. The first call is for its start.
  void ticked(size_t worker, uint64_t clock);
  /// All servers know that.
  void clock_settled(size_t worker) { worker_clocks_[worker].told = worker_clocks_[worker].clock; }
  /// A worker replaces a lost one: it starts at the clock of the slowest other worker.
  void comes_late(size_t worker) {
    worker_clocks_[worker].least = least_told();
    worker_clocks_[worker].is_late = true;
  }
  void finished(size_t worker);
  /// No worker waits for it any more, and its last changes may have had no effect.
  void lost(size_t worker) { worker_clocks_[worker].state = WorkerClock::kGone; }
  /// Whether a get at this clock may have waited for a lost worker.
  bool may_have_waited_for_lost_worker(const Reading& reading) const;

  Reading begin(std::string who, size_t by, bool gated, shard::Consistency consistency, uint64_t round,
                uint64_t clock) const;
  /// Rows to read, with those that hold the counters.
  std::vector<int64_t> choose_rows(Random& random, bool many) const;
  size_t bytes(const Reading& reading) const;
  /// Compares the read values with the expected ones.
  void check(const Reading& reading, const std::vector<std::byte>& values);
  /// A scan returned these rows; `times` counts each key so far.
  void scanned(const Reading& reading, std::span<const int64_t> rows, const std::vector<std::byte>& values,
               std::vector<uint32_t>& times);
  /// The scan is over: each row that was stored all the time came exactly once. `server`: for this server only.
  void scan_over(const Reading& reading, const std::vector<uint32_t>& times,
                 std::optional<size_t> server = std::nullopt);

  /// Worker 0 was lost before it had the table. If the others create it nevertheless, it may start with zeros.
  void initial_may_be_lost() { initial_may_be_lost_ = true; }
  /// A worker has it: it was created, under these numbers, one per server.
  void created(const std::vector<uint32_t>& numbers) { numbers_ = numbers; }
  /// The number that this server gave it; none if no worker has the table.
  std::optional<uint32_t> number(size_t server) const {
    return numbers_.empty() ? std::nullopt : std::optional(numbers_[server]);
  }
  /// At the end: checks a server's part. `complete` are the workers that left cleanly.
  void check_part(const std::string& who, size_t server, shard::Shard& shard, const std::vector<bool>& complete);

 private:
  struct Stripe {
    size_t server;
    uint64_t begin;  ///< its first element in the table
    uint64_t count;
  };
  struct WorkerClock {
    enum State { kAbsent, kHere, kFinished, kGone } state = kAbsent;
    uint64_t clock = 0;
    uint64_t told = 0;   ///< the clock that servers know for certain
    uint64_t least = 0;  ///< it starts here or later
    bool is_late = false;
  };
  /// A decoded counter: the numbers of adds at the first rate, and at the later one.
  struct Count {
    uint32_t early = 0, late = 0;
    uint32_t all() const { return early + late; }
  };
  /// The change of the rate.
  struct Switch {
    size_t by;
    std::vector<size_t> begun_then;  ///< its own earlier changes; by worker, when it was acknowledged
    size_t own;
    std::vector<uint32_t> known_before;  ///< a copy of known_
  };
  struct Values;

  size_t cell(size_t stripe, size_t worker) const { return stripe * workers_ + worker; }
  size_t stripe_of(uint64_t element) const;
  uint64_t row_of(uint64_t element) const { return element / plan_.spec.cols; }
  uint64_t index_of(int64_t row) const { return keyed_ ? index_of_.at(row) : static_cast<uint64_t>(row); }
  uint64_t rows() const { return keyed_ ? plan_.keys.size() : plan_.spec.rows; }
  bool is_owned(size_t stripe) const { return keyed_ && stripe >= plan_.owned_from; }
  size_t owner_of(size_t stripe) const { return (stripe - plan_.owned_from) % workers_; }
  bool is_counter(uint64_t element) const;
  double pattern(uint64_t element) const {
    return static_cast<double>(1 + ((element * 0x9e3779b97f4a7c15) >> 61)) * (plan_.fractional ? 0.1 : 1);
  }
  std::vector<int64_t> addable(size_t by) const;
  std::vector<int64_t> owned(size_t by) const;
  void choose_keys(Add& add, Random& random) const;
  void add_counter_rows(std::vector<int64_t>& rows, size_t by, bool everyones) const;
  std::vector<size_t> stripes_of(const std::vector<int64_t>& rows) const;

  uint32_t count_while(size_t cell, size_t Add::*number, size_t end) const;
  std::pair<uint32_t, uint32_t> bounds(const Reading& reading, size_t stripe, size_t worker) const;
  std::optional<Count> decode(double shown) const;
  bool check_clocks(const Reading& reading);
  bool check_counters(const Reading& reading, size_t stripe, const Values& values, std::vector<Count>& counts);
  std::string wrong_rate(size_t stripe, size_t worker, const std::vector<Count>& counts) const;
  void check_elements(const Reading& reading, size_t stripe, const Values& values, const std::vector<Count>& counts);
  void check_owned(const Reading& reading, size_t stripe, const Values& values);
  double after(const Add& change, uint64_t element, double before) const;
  double first_value() const { return keyed_ ? plan_.spec.initial : 0; }
  bool is_stored(size_t stripe, size_t worker, uint32_t changes) const;
  std::pair<uint32_t, uint32_t> times_allowed(const Reading& reading, size_t stripe) const;
  std::vector<std::pair<uint64_t, uint64_t>> runs_of(const Reading& reading, size_t stripe) const;
  void note_bits(const Reading& reading, const std::vector<std::byte>& values);
  void check_keyed_part(Reading& reading, size_t server, shard::Shard& shard);
  std::string worker_name(size_t worker) const { return "life " + std::to_string(worker); }
  std::string place(size_t stripe) const;
  uint64_t least_told() const;
  void check_start(size_t worker, uint64_t clock);

  Timeline& timeline_;
  const TablePlan plan_;
  const size_t workers_;
  const bool keyed_;
  std::unordered_map<int64_t, uint64_t> index_of_;  ///< of keys
  std::vector<uint32_t> numbers_;
  bool initial_may_be_lost_ = false;
  std::vector<Stripe> stripes_;
  std::vector<size_t> begun_;                  ///< by worker
  std::vector<std::vector<AddRef>> adds_;      ///< by worker
  std::vector<size_t> first_adds_;             ///< by worker: the index of its first add, in sync mode
  std::vector<std::vector<AddRef>> touching_;  ///< by stripe and worker
  std::vector<uint32_t> known_;                ///< by stripe and worker: certainly applied
  std::vector<WorkerClock> worker_clocks_;     ///< by worker
  std::optional<Switch> switch_;
  std::map<uint64_t, std::pair<uint64_t, std::string>> bits_;  ///< sync mode: of each round's get
};

}  // namespace mv::sim
