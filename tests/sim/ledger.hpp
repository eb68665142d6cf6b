#pragma once
// What a table must hold: exact for every reading, whatever the network did.
//
// The first elements of each stripe of each server's part are counters, one for every life of a worker. Every add also adds
// 1 to its worker's counter in each stripe that it touches. As adds of one worker are applied in order, a counter of n says
// that the first n adds of this worker that touch the stripe are in it; and as adds are atomic per stripe, every other
// element must be the sum of just those. What was acknowledged, or lies before a barrier, must be among them.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "table/shard.hpp"
#include "timeline.hpp"

namespace mv::sim {

struct TablePlan {
  table::Spec spec;
  bool fractional = false;  ///< values that round: equal bits then show an equal order of additions
  int initial = 0;          ///< what worker 0 creates it with; 0: nothing
};

/// One add of one worker, as the ledger remembers it.
struct Add {
  size_t by = 0;      ///< which life of a worker
  size_t serial = 0;  ///< how many of its adds to the table came before
  size_t index = 0;   ///< the same, without those that came to nothing
  int amount = 0;
  bool all = true;
  std::vector<int64_t> rows;  ///< what is sent, unless all: with the rows of the counters
  std::vector<size_t> stripes;
};
using AddRef = std::shared_ptr<Add>;

/// A get or peek that has begun.
struct Reading {
  std::string who;
  size_t by = 0;
  bool gated = true;
  std::vector<int64_t> rows;  ///< empty: all
  std::vector<uint32_t> low;  ///< adds that must show, by stripe and worker
  size_t own = 0;             ///< own adds that must show: those with smaller serials
  bool exact = false;         ///< sync mode: the first `index` adds of everyone, and nothing else
  size_t index = 0;
  uint64_t round = 0;  ///< sync mode: which get of this worker
};

class Ledger {
 public:
  Ledger(Timeline& timeline, TablePlan plan, size_t servers, size_t workers);

  const TablePlan& plan() const { return plan_; }
  /// Sync mode: workers make the same calls, so their gets of the same number are equal bit for bit.
  bool compares_bits = true;
  /// The values that the table is created with; empty if none are given.
  std::vector<std::byte> initial_values() const;

  /// A new add, now on its way. A dense one, or one of some rows.
  AddRef add(size_t by, Random& random, bool all);
  std::vector<std::byte> values(const Add& add) const;
  void acknowledged(const Add& add);
  void not_applied(const AddRef& add);
  /// How many adds this worker has begun so far.
  size_t begun(size_t worker) const { return begun_[worker]; }
  /// Those of this worker that began among its first `begun` ones are known to be applied, or to have come to nothing.
  void settled(size_t worker, size_t begun);

  Reading begin(std::string who, size_t by, bool gated, bool sync, uint64_t round) const;
  /// Rows to ask for, with those that hold the counters.
  std::vector<int64_t> choose_rows(Random& random, bool many) const;
  size_t bytes(const Reading& reading) const;
  /// Compares what came with what must be.
  void check(const Reading& reading, const std::vector<std::byte>& values);
  /// Worker 0 was lost before it had the table: if the others create it all the same, it may start from zeros.
  void initial_may_be_lost() { initial_may_be_lost_ = true; }
  /// Some worker has it: it was created, under these numbers, one a server.
  void created(const std::vector<uint32_t>& numbers) { numbers_ = numbers; }
  /// The number that this server knows it by; none if nobody has the table.
  std::optional<uint32_t> number(size_t server) const {
    return numbers_.empty() ? std::nullopt : std::optional(numbers_[server]);
  }
  /// At the end: a server's part. `complete` are the workers that left in good order.
  void check_part(const std::string& who, size_t server, const table::Shard& shard, const std::vector<bool>& complete);

 private:
  struct Stripe {
    size_t server;
    uint64_t first;  ///< element in the server's part
    uint64_t begin;  ///< element in the table
    uint64_t count;
  };
  struct Values;

  size_t cell(size_t stripe, size_t worker) const { return stripe * workers_ + worker; }
  size_t stripe_of(uint64_t element) const;
  uint64_t row_of(uint64_t element) const { return element / plan_.spec.cols; }
  bool is_counter(uint64_t element) const;
  double pattern(uint64_t element) const;
  void add_counter_rows(std::vector<int64_t>& rows, size_t by, bool everyones) const;
  std::vector<size_t> stripes_of(const std::vector<int64_t>& rows) const;
  bool check_counters(const Reading& reading, size_t stripe, const Values& values, std::vector<uint32_t>& counts);
  void check_elements(const Reading& reading, size_t stripe, const Values& values, const std::vector<uint32_t>& counts);
  std::vector<std::pair<uint64_t, uint64_t>> runs_of(const Reading& reading, size_t stripe) const;
  void note_bits(const Reading& reading, const std::vector<std::byte>& values);
  std::string worker_name(size_t worker) const { return "life " + std::to_string(worker); }

  Timeline& timeline_;
  const TablePlan plan_;
  const size_t workers_;
  std::vector<uint32_t> numbers_;
  bool initial_may_be_lost_ = false;
  std::vector<Stripe> stripes_;
  std::vector<size_t> begun_;                                  ///< by worker
  std::vector<std::vector<AddRef>> adds_;                      ///< by worker
  std::vector<std::vector<AddRef>> touching_;                  ///< by stripe and worker
  std::vector<uint32_t> known_;                                ///< by stripe and worker: applied for certain
  std::map<uint64_t, std::pair<uint64_t, std::string>> bits_;  ///< sync mode: of each round's get
};

}  // namespace mv::sim
