#pragma once
// What a table must hold: exact for every reading, whatever the network did.
//
// The first elements of each stripe of each server's part are counters, one for every life of a worker. Every add also
// adds 1 to its worker's counter in each stripe that it touches. As adds of one worker are applied in order, a counter
// of n says that the first n adds of this worker that touch the stripe are in it; and as adds are atomic per stripe,
// every other element must be the sum of just those. What was acknowledged, or lies before a barrier, must be among
// them.
//
// In keyed tables each row is such a stripe of its own. Some rows belong to one life of a worker, who alone changes
// them, and also sets and erases them: they have no counters, but must be as some prefix of its changes leaves them.

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
  bool fractional = false;  ///< values that round: equal bits then show an equal order of additions
  int initial = 0;          ///< dense: what worker 0 creates it with; 0: nothing
  double later_rate = 0;    ///< of sgd, once a worker has set it; 0: none does
  // keyed tables
  std::vector<int64_t> keys;  ///< those in use
  uint64_t untouched = 0;     ///< this many at the end of the shared ones are only read
  uint64_t owned_from = 0;    ///< from this one on, they belong to one life each, in turn
  bool sets_any_time =
      false;  ///< sync mode: not only between barriers, so that gets of the same number may differ there

  /// What one add of 1 does.
  double effect() const { return spec.updater.name == "sgd" ? -spec.updater.parameters.front() : 1; }
};

/// One change of one worker, as the ledger remembers it.
struct Add {
  shard::Write write = shard::Write::Add;
  size_t by = 0;       ///< which life of a worker
  size_t serial = 0;   ///< how many of its changes of the table came before
  size_t index = 0;    ///< how many of its adds came before, without those that came to nothing
  uint64_t clock = 0;  ///< stale-synchronous tables: its worker's
  int amount = 0;
  bool all = true;
  std::vector<int64_t> rows;  ///< what is sent, unless all: with the rows of the counters
  std::vector<size_t> stripes;
};
using AddRef = std::shared_ptr<Add>;

/// A get, a peek or a scan that has begun.
struct Reading {
  std::string who;
  size_t by = 0;
  bool gated = true;
  bool all = true;            ///< of everything
  std::vector<int64_t> rows;  ///< which; dense and all: empty
  std::vector<uint32_t> low;  ///< adds that must show, by stripe and worker
  size_t own = 0;             ///< own changes that must show: those with smaller serials
  bool exact = false;         ///< sync mode: the first `index` adds of everyone, and nothing else
  size_t index = 0;
  uint64_t round = 0;    ///< sync mode: which get of this worker
  bool bounded = false;  ///< stale-synchronous: adds of clocks below `needs` must show
  uint64_t needs = 0;
  std::vector<uint64_t> told;  ///< by worker: all servers know that it stands there at least
};

class Ledger {
 public:
  Ledger(Timeline& timeline, TablePlan plan, size_t servers, size_t workers);

  const TablePlan& plan() const { return plan_; }
  /// Sync mode: workers make the same calls, so their gets of the same number are equal bit for bit.
  bool compares_bits = true;
  /// The values that the table is created with; empty if none are given.
  std::vector<std::byte> initial_values() const;

  /// A new change, now on its way. An add to everything, or to some rows; sets and erases are of some of the worker's
  /// own.
  AddRef add(size_t by, Random& random, shard::Write write, bool all, uint64_t clock);
  std::vector<std::byte> values(const Add& add) const;
  void acknowledged(const Add& add);
  void not_applied(const AddRef& add);
  /// How many changes this worker has begun so far.
  size_t begun(size_t worker) const { return begun_[worker]; }
  /// Those of this worker that began among its first `begun` ones are known to be applied, or to have come to nothing.
  void settled(size_t worker, size_t begun);

  /// This worker sets the later rate: its earlier adds have the first one, its later ones the other.
  void switches(size_t by);
  /// All adds that begin from now on have the later one.
  void switched();

  /// A worker stands at this clock; for the first time when it takes part.
  void ticked(size_t worker, uint64_t clock);
  /// All servers know that.
  void clock_settled(size_t worker) { progress_[worker].told = progress_[worker].clock; }
  /// A worker comes in the place of a lost one: it stands where the slowest of the others does.
  void comes_late(size_t worker) { progress_[worker].least = least_told(); }
  void finished(size_t worker);
  /// Nobody waits for it any more, and what it did last may have come to nothing.
  void lost(size_t worker) { progress_[worker].state = WorkerProgress::kGone; }
  /// Whether a get at this clock may have waited for somebody who is lost.
  bool may_have_waited_for_the_lost(const Reading& reading) const;

  Reading begin(std::string who, size_t by, bool gated, shard::Consistency consistency, uint64_t round, uint64_t clock) const;
  /// Rows to ask for, with those that hold the counters.
  std::vector<int64_t> choose_rows(Random& random, bool many) const;
  size_t bytes(const Reading& reading) const;
  /// Compares what came with what must be.
  void check(const Reading& reading, const std::vector<std::byte>& values);
  /// A scan gave these rows, and how often it gave each key so far.
  void scanned(const Reading& reading, std::span<const int64_t> rows, const std::vector<std::byte>& values,
               std::vector<uint32_t>& times);
  /// It is over: what was stored all the while came exactly once. `server`: of this one only.
  void scan_over(const Reading& reading, const std::vector<uint32_t>& times,
                 std::optional<size_t> server = std::nullopt);

  /// Worker 0 was lost before it had the table: if the others create it all the same, it may start from zeros.
  void initial_may_be_lost() { initial_may_be_lost_ = true; }
  /// Some worker has it: it was created, under these numbers, one a server.
  void created(const std::vector<uint32_t>& numbers) { numbers_ = numbers; }
  /// The number that this server knows it by; none if nobody has the table.
  std::optional<uint32_t> number(size_t server) const {
    return numbers_.empty() ? std::nullopt : std::optional(numbers_[server]);
  }
  /// At the end: a server's part. `complete` are the workers that left in good order.
  void check_part(const std::string& who, size_t server, shard::Shard& shard, const std::vector<bool>& complete);

 private:
  struct Stripe {
    size_t server;
    uint64_t begin;  ///< element in the table
    uint64_t count;
  };
  struct WorkerProgress {
    enum State { kAbsent, kHere, kFinished, kGone } state = kAbsent;
    uint64_t clock = 0;
    uint64_t told = 0;   ///< servers know this for certain
    uint64_t least = 0;  ///< it begins here or later
  };
  /// What a counter tells: adds at the first rate, and at the later one.
  struct Count {
    uint32_t early = 0, late = 0;
    uint32_t all() const { return early + late; }
  };
  /// The change of the rate.
  struct Switch {
    size_t by;
    std::vector<size_t> begun_then;  ///< its own changes that came before; by worker, when it was acknowledged
    size_t own;
    std::vector<uint32_t> known_before;  ///< as known_ was
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
  double pattern(uint64_t element) const;
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
  std::vector<std::vector<AddRef>> touching_;  ///< by stripe and worker
  std::vector<uint32_t> known_;                ///< by stripe and worker: applied for certain
  std::vector<WorkerProgress> progress_;            ///< by worker
  std::optional<Switch> switch_;
  std::map<uint64_t, std::pair<uint64_t, std::string>> bits_;  ///< sync mode: of each round's get
};

}  // namespace mv::sim
