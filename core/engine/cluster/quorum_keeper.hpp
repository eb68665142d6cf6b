#pragma once
// The built-in keeper: the voters of a view decide the next one.

#include <functional>
#include <optional>
#include <set>

#include "base/clock.hpp"
#include "engine/cluster/keeper.hpp"
#include "engine/cluster/view.hpp"

namespace mv::cluster {

/// Paxos (Lamport, The Part-Time Parliament, 1998) with one instance for each view, and reconfiguration by the decided
/// values: the view with number e names the voters that decide the view with number e + 1 (Lamport, Malkhi and Zhou,
/// Reconfiguring a State Machine, 2010, with alpha = 1). A voter forgets an instance when it learns of its decision, so
/// it keeps two views at most. The number of the view serves as the revision of compare-and-set: a write after view e
/// is a proposal in instance e + 1.
///
/// - The master of view e may propose once in instance e + 1 with the lowest ballot, and needs no first phase for that.
/// - Every other process prepares first. If voters of its quorum have accepted a view, it proposes the one with the
///   highest ballot.
/// - A quorum is more than half of the voters, or exactly half of them with the master of view e (Jajodia and Mutchler, Dynamic Voting, 1990).
/// - A voter that still hears from the master of view e promises nothing to others. This only delays them.
///
/// Voters keep nothing on disk: a restarted process is a new incarnation, and votes only once a view names it. Messages
/// may be lost, duplicated and reordered. Loop thread only.
class QuorumKeeper final : public Keeper {
 public:
  struct Vote {
    wire::VoteWord word = wire::VoteWord::Prepare;
    uint64_t epoch = 0;     ///< the instance: of the view that is being decided
    uint64_t ballot = 0;
    uint64_t accepted = 0;  ///< Promise: ballot of `view`; Refuse: the promised ballot
    std::optional<View> view{}, base{};
  };
  struct Events {
    std::function<void(base::Peer to, const Vote& vote)> send;
    /// This node hears from the master of decided().
    std::function<bool()> hears_master;
    /// decided() has changed, not by the owner's own learn() or write().
    std::function<void(const View& view)> decided;
  };

  /// @param patience  after which read() and write() fail
  QuorumKeeper(const base::Clock& clock, base::Peer self, base::Nanos patience, Events events)
      : clock_(clock), self_(self), patience_(patience), events_(std::move(events)) {}

  void read(Read done) override;
  void write(uint64_t revision, std::vector<std::byte> view, Written done) override;

  /// Learns that this view is decided.
  void learn(const View& view);
  const View& decided() const { return decided_; }
  void on_vote(base::Peer from, const Vote& vote);

  base::Nanos next_deadline() const { return attempt_ ? attempt_->again : base::kNever; }
  void tick();

  /// Whether these voters of `view` are a quorum for the next one.
  static bool is_quorum(const View& view, const std::set<base::Peer>& voters);

 private:
  /// A read or a write of this node.
  struct Attempt {
    Read read{};
    Written written{};
    std::optional<View> mine{};      ///< the view to write
    std::optional<View> proposed{};  ///< in the second phase: `mine`, or a view that another process has begun to write
    uint64_t instance = 0, ballot = 0;
    uint64_t best = 0;     ///< the highest ballot of an accepted view, `found`
    std::optional<View> found{};
    uint64_t highest = 0;  ///< the highest ballot that voters have promised to others
    std::set<base::Peer> agreed{};
    base::Nanos again{0}, pause{0}, until{0};
  };

  void begin(Attempt attempt);
  void prepare();
  void propose();
  void ask(const Vote& vote);
  void has_decided(const View& view);
  void take(View view);
  void settle();
  void end(const base::Status& status);
  Vote answer(base::Peer from, const Vote& vote);
  uint64_t next_ballot(uint64_t above) const;
  uint64_t instance() const { return decided_.epoch + 1; }

  const base::Clock& clock_;
  const base::Peer self_;
  const base::Nanos patience_;
  const Events events_;
  View decided_;
  // as a voter, in instance()
  uint64_t promised_ = 0, accepted_ = 0;
  std::optional<View> accepted_view_;
  // as a proposer
  uint64_t prepared_ = 0;       ///< a read has prepared this ballot, and found nothing accepted
  bool first_is_used_ = false;  ///< the master's ballot without a first phase
  uint64_t last_ballot_ = 0;    ///< of this node
  std::optional<Attempt> attempt_;
};

}  // namespace mv::cluster
