#pragma once
// The gate of a table in sync mode: the order of adds and gets on one server's part.

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/rpc/pending.hpp"
#include "engine/table/state.hpp"

namespace mv::table {

/// Multiverso's guarantee: workers that make the same adds and gets receive the same bits at the i-th get.
///
/// Every worker counts its adds to and gets from the table, and each request carries the counts. With n adds before a
/// request ("index") and g gets before it ("round"):
///  - adds are applied in the order (index, rank), and not before every worker has received its first g gets;
///  - a get is served once index adds of every worker are applied.
/// Get number g therefore sees the first n adds of each worker, added in the same order everywhere, and nothing else. A
/// finished worker no longer counts. A worker that joins begins behind the last get that was served. If the counts show that workers do not make the same calls, all get an error that
/// names two of them.
///
/// Holds tokens, not data: its owner applies, grants, serves and fails. Loop thread only.
class SyncGate {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void apply_change(const rpc::Asked& asked) = 0;
    virtual void grant_change(const rpc::Asked& asked) = 0;
    virtual void serve_get(const rpc::Asked& asked) = 0;
    virtual void fail_gated(const rpc::Asked& asked, const base::Status& why) = 0;
  };

  struct Count {
    uint64_t round = 0;
    uint64_t index = 0;
  };

  SyncGate(Owner& owner, std::string table) : owner_(owner), table_(std::move(table)) {}

  /// Sets the workers: worker i of the cluster is `names[i]` in messages. Call it first, and again when names
  /// change.
  void set_workers(std::vector<std::string> names);

  /// One of the `of` chunks of an add. A withdrawn chunk arrives again, perhaps after later adds. `bytes` counts
  /// against the grants if the data is still at the sender.
  void change(size_t worker, const rpc::Asked& asked, Count count, uint32_t of, uint64_t bytes, bool data_here);
  /// A change that is not counted: a set, an erase, another updater. True: the gate applies it after those of the
  /// worker's adds that have arrived. False: apply it now.
  bool follow(size_t worker, const rpc::Asked& asked);
  void data(size_t worker, const rpc::Asked& asked);
  void get(size_t worker, const rpc::Asked& asked, Count count);
  /// The worker has received its get number `round`.
  void got(size_t worker, uint64_t round);
  /// Gives up a request of the worker. True: it is withdrawn, and `missing` names the workers that it waited for.
  /// False: too late.
  bool withdraw(size_t worker, const rpc::Asked& asked, std::string* missing);
  /// For each worker its waiting gets, otherwise its first waiting add.
  std::vector<GateWait> waits() const;
  /// The number of the worker's applied adds, and of the gets that it has received.
  Tally tally(size_t worker) const;
  void finished(size_t worker);
  void lost(size_t worker, const base::Status& why);
  /// A process takes the place of a worker that has finished. Its first get is the one that follows the last one that
  /// was served here, and its first add follows the adds that this one contained.
  void joined(size_t worker);
  /// It begins with these numbers, those of another worker's next get and add. One that takes part already never goes back.
  void begins(size_t worker, Count count);
  /// Whether no get was served that needed a later add of a worker that begins so.
  bool can_begin(Count count) const { return count.index >= next_.index && count.round + 1 >= next_.round; }
  /// The numbers of the worker's next get and add.
  Count count_of(size_t worker) const { return {workers_[worker].got, workers_[worker].applied}; }

  /// The gate's state of a worker, besides its requests that wait here.
  struct Progress {
    bool active = true;
    uint64_t got = 0;                     ///< it has received its first `got` gets
    std::set<uint64_t> got_early;         ///< and also these, although the answer to an earlier one was lost
    uint64_t applied = 0;                 ///< its applied adds
    std::map<uint64_t, uint64_t> closed;  ///< round -> adds before the get that ended it, for rounds that others may be in
    Count latest;                         ///< round of its newest add, and adds including it
  };
  /// No add is half applied.
  bool is_between_adds() const;
  /// While nothing waits here and is_between_adds(): the complete state of the gate, and a gate with this state.
  std::vector<Progress> state() const;
  const base::Status& out_of_step() const { return broken_; }
  /// The numbers with which a worker that joins now begins.
  Count next() const { return next_; }
  void restore(const std::vector<Progress>& workers, const base::Status& out_of_step, Count next);
  /// Whether a request that waits here needs this add of the worker.
  bool awaits_add(size_t worker, uint64_t index) const;
  /// Whether a get would be served at once, or a request that waits here needs it.
  bool is_ready_or_awaits_get(Count count) const;

 private:
  struct Change {
    rpc::Asked asked;
    Count count;
    uint32_t of;
    uint64_t bytes;
    bool granted;
    bool data_here;
  };
  struct Get {
    rpc::Asked asked;
    Count count;
  };
  struct Follower {
    rpc::Asked asked;
    uint64_t adds;  ///< the number of the worker's adds that must be applied first
  };
  struct Worker : Progress {
    std::string name;
    uint32_t chunks = 0;                  ///< applied chunks of its next add
    std::deque<Change> changes;           ///< in order of index
    std::deque<Follower> followers;       ///< in order of arrival
    std::vector<Get> gets;                ///< not served yet
  };

  void advance();
  bool apply_turn();
  bool apply_follower();
  void give_grants();
  bool serve_one();
  std::vector<Worker*> order();
  uint64_t least_got() const;
  void check_step(const Worker& worker, Count count, bool is_get);
  void fail_all(const base::Status& why);
  std::vector<GateWait::Missing> missing_for(const Worker& waiter, Count count, bool is_get) const;
  std::string names_of(const std::vector<GateWait::Missing>& missing) const;

  Owner& owner_;
  const std::string table_;
  std::vector<Worker> workers_;
  Count next_;  ///< the get after the last one that was served, and the adds that this one contained
  base::Status broken_;
  bool advancing_ = false;
};

}  // namespace mv::table
