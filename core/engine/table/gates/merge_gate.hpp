#pragma once
// The gate of a merging table on one server: combines the adds of all workers into rounds.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/prefetch.hpp"
#include "base/result.hpp"
#include "engine/rpc/pending.hpp"
#include "engine/table/gates/waiting_gets.hpp"
#include "engine/table/state.hpp"

namespace mv::table {

/// Implements MXNet's dist_sync for one key. The i-th add of every worker is its part of round i. Once the parts of all
/// workers for a round have arrived, their sum, in rank order, goes through the updater, once. A get of a worker that
/// has made n adds is served when n rounds are merged. It therefore contains the complete rounds of the worker's own
/// adds, and nothing of a round that is still open. (MXNet counts pushes of any worker: there, two pushes of one worker
/// count as one of each of two workers.)
///
/// A large add is several messages, each for one stripe of the table. A stripe is merged as soon as it has the parts of
/// all workers. Rows form one stripe together, whichever rows they are. Only the oldest round is merged. Parts of later
/// rounds wait, and are acknowledged only when their round is the oldest. A worker that runs ahead therefore fills its
/// own window, not this server.
///
/// The gate does not wait for a worker that has left. Adds that the worker made before still count. Holds tokens, not
/// data. Loop thread only.
class MergeGate {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// All parts of a stripe, in rank order, then in order of arrival.
    virtual void merge(std::span<const rpc::Asked> parts) = 0;
    /// The add may be acknowledged: it has arrived, and its round is the oldest.
    virtual void accept(const rpc::Asked& asked) = 0;
    virtual void serve_get(const rpc::Asked& asked) = 0;
    virtual void fail_gated(const rpc::Asked& asked, const base::Status& why) = 0;
    /// merged() has grown.
    virtual void on_merged() = 0;
  };
  static constexpr uint64_t kRows = UINT64_MAX;  ///< the stripe of adds by row

  /// @param table  its name, which the owner keeps
  MergeGate(Owner& owner, std::string_view table) : owner_(owner), table_(table) {}

  /// Sets the workers: worker i of the cluster is `(*names)[i]` in messages. All begin with round 0. To be called
  /// first, and again when names change.
  void set_workers(WorkerNames names);

  /// One of the `of` messages of a worker's add number `round`. Either all messages of an add are in kRows (an add by
  /// row), or none.
  void change(size_t worker, const rpc::Asked& asked, uint64_t round, uint64_t stripe, uint32_t of);
  /// Serves a get of a worker that has made `adds` adds, now or later.
  void get(const rpc::Asked& asked, uint64_t adds) {
    gets_.add(asked, adds);
    serve();
  }
  /// Gives up a get. True: it is withdrawn, and `missing` names the workers that it waited for. False: it does not wait
  /// here.
  bool withdraw(const rpc::Asked& asked, std::string* missing);

  /// The gate waits for the worker from this round on; UINT64_MAX: never again.
  void begins(size_t worker, uint64_t round);
  /// Whether the worker's parts from this round on can still be merged, and an earlier process of its place has none.
  bool can_begin(size_t worker, uint64_t round) const;
  /// The gate no longer waits for the worker.
  void finished(size_t worker) { begins(worker, UINT64_MAX); }
  /// Fails the gets that wait for the worker, and returns their workers. Later gets do not wait for it.
  std::vector<base::Peer> lost(size_t worker, const base::Status& why);
  /// Whether later rounds wait for the worker: it has neither finished nor left the rounds, and is not lost.
  bool counts_on(size_t worker) const { return first_[worker] != UINT64_MAX; }
  /// Whether the oldest round waits for more than one worker.
  bool awaits_several() const { return std::ranges::count_if(first_, [this](uint64_t first) { return first <= merged_; }) > 1; }
  /// A process replaces a lost worker: it begins with the first round in which the lost one has no part.
  void joined(size_t worker);
  /// Sets the round of all workers, after a checkpoint was loaded. Fails the adds that wait here.
  void restart(uint64_t round);

  /// The number of the worker's next add.
  uint64_t next_round(size_t worker) const;

  /// Prefetches the gate for an imminent use, one cache line per level. Each level needs the previous one to be in the
  /// caches.
  void expect(int level) const {
    if (level == 0) {
      base::prefetch(first_.data());
      return base::prefetch_to_write(rounds_.data());
    }
    if (rounds_.empty()) return;
    const Round& round = rounds_.front();
    if (level == 1) {
      base::prefetch_to_write(round.shares.data());
      return base::prefetch_to_write(round.stripes.data());
    }
    if (!round.stripes.empty()) base::prefetch_to_write(round.stripes.front().parts.data());
  }

  /// The number of rounds that are merged completely.
  uint64_t merged() const { return merged_; }
  /// The gets that wait here, and of each worker the first add for a later round.
  std::vector<GateWait> waits() const;

  /// All parts that have arrived are merged.
  bool is_between_rounds() const { return open_ == 0; }
  /// A part of this round, or of a later one, has arrived.
  bool has_begun(uint64_t round) const { return round < merged_ + open_; }
  /// For each worker, the first round in which the gate waits for it. Between rounds and while no get waits, this and
  /// merged() are the complete state of the gate.
  const std::vector<uint64_t>& first_rounds() const { return first_; }
  void restore(uint64_t merged, std::vector<uint64_t> first_rounds) {
    merged_ = merged;
    first_ = std::move(first_rounds);
  }

 private:
  struct Contribution {
    size_t worker;
    rpc::Asked asked;
  };
  /// How much of a worker's add has arrived.
  struct Share {
    uint32_t here = 0, of = 0;
    bool by_row = false;
    bool whole() const { return of > 0 && here == of; }
  };
  struct Stripe {
    uint64_t number;
    std::vector<Contribution> parts;  ///< in rank order, then in order of arrival; empty: it is merged, or nothing has arrived
  };
  struct Round {
    std::vector<Share> shares;  ///< by worker
    std::vector<Stripe> stripes;    ///< ascending
    bool is_merged() const { return std::ranges::all_of(stripes, [](const Stripe& stripe) { return stripe.parts.empty(); }); }
  };

  Round& round_at(uint64_t number);
  Round& oldest() { return rounds_.front(); }
  bool awaits(size_t worker) const { return first_[worker] <= merged_; }
  bool is_ready(const Round& round, const Stripe& stripe) const;
  bool is_whole(const Round& round) const;
  void merge_stripes();
  void merge_stripe(Stripe& stripe);
  void forget_oldest();
  void accept_oldest();
  void advance();
  void serve();
  std::vector<GateWait::Missing> missing() const;

  Owner& owner_;
  const std::string_view table_;
  WorkerNames names_;
  std::vector<uint64_t> first_;  ///< by worker: the first round in which the gate waits for it
  uint64_t merged_ = 0;
  /// The first `open_` are the rounds from merged_ on. Behind them are old ones, whose memory the next rounds reuse:
  /// once there were some, a table's rounds allocate nothing.
  std::vector<Round> rounds_;
  size_t open_ = 0;
  WaitingGets gets_;          ///< each waits for a value of merged()
  bool advancing_ = false;
};

}  // namespace mv::table
