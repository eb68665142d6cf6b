#pragma once
// The gate of a stale-synchronous table on one server: which gets may be served, and which workers they wait for.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "engine/rpc/pending.hpp"
#include "engine/table/gates/waiting_gets.hpp"
#include "engine/table/state.hpp"

namespace mv::table {

/// Stale-synchronous parallel (Ho et al., NIPS 2013): a get at clock c contains all adds of all workers with a clock <=
/// c - s - 1. An add's clock is the number of Clock messages that its worker had sent before it.
///
/// rpc starts a client's requests in their order, and adds are applied as they start. When a worker's Clock message
/// with number k arrives, all its adds with clocks below k are therefore applied here. Let `least` be the smallest such
/// k of the workers that have not finished: a get at clock c may be served once least >= c - s. Every server has its
/// own gate, and a worker sends its clock to each of them.
///
/// Holds tokens, not data. Loop thread only.
class StaleGate {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void serve_stale(const rpc::Asked& asked) = 0;
    virtual void fail_gated(const rpc::Asked& asked, const base::Status& why) = 0;
  };

  /// @param table  its name, which the owner keeps
  StaleGate(Owner& owner, std::string_view table, uint64_t staleness) : owner_(owner), table_(table), staleness_(staleness) {}

  /// The least() that a get at this clock needs. It also holds for readers that read a shard without a request.
  static uint64_t needed(uint64_t staleness, uint64_t clock) { return clock > staleness ? clock - staleness : 0; }

  /// Sets the workers: worker i of the cluster is `(*names)[i]` in messages. All are at clock 0. Call it first, and
  /// again when names change.
  void set_workers(WorkerNames names);
  /// Sets the clock of all workers, after a checkpoint was loaded.
  void restart(uint64_t clock);

  /// The worker has begun its clock-th iteration. Clocks never go back.
  void clock(size_t worker, uint64_t clock);
  /// Serves a get of a worker at this clock, now or later.
  void get(const rpc::Asked& asked, uint64_t clock);
  /// Gives up a get. True: it is withdrawn, and `missing` names the workers that it waited for. False: it does not wait
  /// here.
  bool withdraw(const rpc::Asked& asked, std::string* missing);

  /// The gate no longer waits for the worker.
  void finished(size_t worker);
  /// Fails the gets that wait for the worker. Later gets do not wait for it.
  void lost(size_t worker, const base::Status& why);
  /// A process replaces a lost worker: it starts at the clock of the slowest other worker.
  void joined(size_t worker);
  /// The same, at this clock, which it has on another server: the others may have passed it here meanwhile, and then wait for it.
  void begins(size_t worker, uint64_t clock);

  /// The iteration that every unfinished worker has begun; UINT64_MAX if all have finished.
  uint64_t least() const;
  uint64_t clock_of(size_t worker) const { return workers_[worker].clock; }
  /// The gets that wait here.
  std::vector<GateWait> waits() const;

  struct Worker {
    bool active = true;
    uint64_t clock = 0;
  };
  /// While no get waits: the complete state of the gate, and a gate with this state.
  const std::vector<Worker>& state() const { return workers_; }
  void restore(std::vector<Worker> workers) { workers_ = std::move(workers); }
  /// Whether a get at this clock would be served at once.
  bool is_ready(uint64_t clock) const { return needed(staleness_, clock) <= least(); }

 private:
  void serve();
  std::vector<GateWait::Missing> behind(uint64_t needs) const;

  Owner& owner_;
  const std::string_view table_;
  const uint64_t staleness_;
  WorkerNames names_;
  std::vector<Worker> workers_;
  WaitingGets gets_;  ///< each waits for a value of least()
};

}  // namespace mv::table
