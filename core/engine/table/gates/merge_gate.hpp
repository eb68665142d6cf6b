#pragma once
// Rounds of a merging table on one server: all workers' adds together, once.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "engine/rpc/pending.hpp"
#include "engine/table/gates/waiting_gets.hpp"
#include "engine/table/state.hpp"

namespace mv::table {

/// What MXNet's dist_sync does for a key: the i-th add of every worker is its part of round i. Once all workers' parts of a round
/// are here, their sum, in the order of ranks, goes through the updater, once. A get of a worker that has made n adds is served when
/// n rounds are merged: so it holds its own adds and all that belongs to their rounds, and nothing of a round that is still open.
/// (MXNet counts pushes, whoever makes them; two of one worker there pass for one of each of two.)
///
/// A large add is several messages; each is of one stripe, a stripe of the table, and a stripe is merged as soon as it has all
/// workers' parts. Rows are a stripe together, whatever rows they are. Only the oldest round is merged; parts of later ones
/// wait, and are not acknowledged before theirs is the oldest: so a worker that runs ahead fills its own window, not this server.
///
/// Who has left is waited for no more, and what it left behind still counts. Holds tokens, not data. Loop thread only.
class MergeGate {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// All parts of a stripe, in the order of ranks, then of arrival.
    virtual void merge(std::span<const rpc::Asked> parts) = 0;
    /// The add may be acknowledged: it is here, and its round is the oldest.
    virtual void accept(const rpc::Asked& asked) = 0;
    virtual void serve_get(const rpc::Asked& asked) = 0;
    virtual void fail_gated(const rpc::Asked& asked, const base::Status& why) = 0;
    /// merged() has grown.
    virtual void on_merged() = 0;
  };
  static constexpr uint64_t kRows = UINT64_MAX;  ///< the stripe of adds by row

  /// @param table  its name, which the owner keeps
  MergeGate(Owner& owner, std::string_view table) : owner_(owner), table_(table) {}

  /// Worker i of the cluster is `(*names)[i]` in messages; all begin with round 0. Before anything else.
  void set_workers(WorkerNames names);

  /// One of the `of` messages of a worker's add number `round`. An add by row is in kRows with all of its messages, any other in none
  /// of them there.
  void change(size_t worker, const rpc::Asked& asked, uint64_t round, uint64_t stripe, uint32_t of);
  /// A get of a worker that has made `adds` adds: served now or later.
  void get(const rpc::Asked& asked, uint64_t adds);
  /// The worker gives up a get. True: it is withdrawn, and `missing` says whom it waited for. False: it does not wait here.
  bool withdraw(const rpc::Asked& asked, std::string* missing);

  /// The worker takes part from this round on; UINT64_MAX: never again.
  void begins(size_t worker, uint64_t round);
  /// It is waited for no more.
  void finished(size_t worker) { begins(worker, UINT64_MAX); }
  /// The gets that wait for it now fail; later ones go on without it.
  void lost(size_t worker, const base::Status& why);
  /// A process in the place of a lost one: it begins with the first round in which that one has no part.
  void joined(size_t worker);
  /// All workers stand at this round: after a checkpoint was loaded. What waited here is given up.
  void restart(uint64_t round);

  /// The number of the worker's next add.
  uint64_t next_round(size_t worker) const;

  /// It will be used in a moment: brings the next line of its memory into the caches, of which the one before has to be there.
  void expect(int level) const {
    if (level == 0) {
      __builtin_prefetch(first_.data());
      return __builtin_prefetch(rounds_.data(), 1);
    }
    if (rounds_.empty()) return;
    const Round& round = rounds_.front();
    if (level == 1) {
      __builtin_prefetch(round.shares.data(), 1);
      return __builtin_prefetch(round.stripes.data(), 1);
    }
    if (!round.stripes.empty()) __builtin_prefetch(round.stripes.front().parts.data(), 1);
  }

  /// Rounds that are merged whole.
  uint64_t merged() const { return merged_; }
  /// The gets that wait here.
  std::vector<GateWait> waits() const;

 private:
  struct Contribution {
    size_t worker;
    rpc::Asked asked;
  };
  /// How much of a worker's add is here.
  struct Share {
    uint32_t here = 0, of = 0;
    bool by_row = false;
    bool whole() const { return of > 0 && here == of; }
  };
  struct Stripe {
    uint64_t number;
    std::vector<Contribution> parts;  ///< in the order of ranks, then of arrival; none: it is merged, or nothing has come
  };
  struct Round {
    std::vector<Share> shares;  ///< by worker
    std::vector<Stripe> stripes;    ///< ascending
    bool is_merged() const {
      return std::ranges::all_of(stripes, [](const Stripe& stripe) { return stripe.parts.empty(); });
    }
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
  std::vector<uint64_t> first_;  ///< by worker: the round from which on it is waited for
  uint64_t merged_ = 0;
  /// From merged_ on `open_` rounds; behind them are old ones, whose memory the next rounds use: a table's rounds allocate nothing once
  /// there were some.
  std::vector<Round> rounds_;
  size_t open_ = 0;
  WaitingGets gets_;          ///< for a merged()
  bool advancing_ = false;
};

}  // namespace mv::table
