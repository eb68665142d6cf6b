#pragma once
// Who may read a stale-synchronous table on one server, and who waits for whom.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "engine/rpc/pending.hpp"
#include "engine/table/gates/waiting_gets.hpp"
#include "engine/table/state.hpp"

namespace mv::table {

/// Stale-synchronous parallel (Ho et al., NIPS 2013): a get at clock c holds all adds of all workers of clock <= c - s - 1, where an
/// add's clock is the number of Clock messages that its worker had sent before it.
///
/// rpc starts a client's requests in their order, and adds are applied as they start; so when a worker's Clock message with
/// number k comes, all its adds of clocks below k are applied here. With `least` the smallest such k of the workers that have not
/// finished, a get at clock c may be served once least >= c - s. Every server keeps its own gate, a worker tells each of them.
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

  /// What least() must be for a get at this clock: wherever it is asked, here or by whoever reads a shard without a request.
  static uint64_t needed(uint64_t staleness, uint64_t clock) { return clock > staleness ? clock - staleness : 0; }

  /// Worker i of the cluster is `(*names)[i]` in messages; all stand at clock 0. Before anything else.
  void set_workers(WorkerNames names);
  /// All workers stand at this clock: after a checkpoint was loaded.
  void restart(uint64_t clock);

  /// The worker has begun its clock-th iteration. Clocks never go back.
  void clock(size_t worker, uint64_t clock);
  /// A get of a worker at this clock: served now or later.
  void get(const rpc::Asked& asked, uint64_t clock);
  /// The worker gives up a get. True: it is withdrawn, and `missing` says whom it waited for. False: it waits for nobody here.
  bool withdraw(const rpc::Asked& asked, std::string* missing);

  /// It is waited for no more.
  void finished(size_t worker);
  /// The gets that wait for it now fail; later ones go on without it.
  void lost(size_t worker, const base::Status& why);
  /// A process in the place of a lost one: it stands where the slowest of the others does.
  void joined(size_t worker);

  /// Every worker that has not finished has begun this iteration; UINT64_MAX if all have finished.
  uint64_t least() const;
  uint64_t clock_of(size_t worker) const { return workers_[worker].clock; }
  /// The gets that wait here.
  std::vector<GateWait> waits() const;

 private:
  struct Worker {
    bool active = true;
    uint64_t clock = 0;
  };
  void serve();
  std::vector<GateWait::Missing> behind(uint64_t needs) const;

  Owner& owner_;
  const std::string_view table_;
  const uint64_t staleness_;
  WorkerNames names_;
  std::vector<Worker> workers_;
  WaitingGets gets_;  ///< for a least()
};

}  // namespace mv::table
