#pragma once
// This node's access to the keeper of views, with replicas.

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/quorum_keeper.hpp"
#include "engine/cluster/roster.hpp"

namespace mv::cluster {

/// Owns the built-in keeper, unless there is another one; and the revision of the decided view that this node knows.
/// One read or write is under way at a time. Each one that fails is followed by a read. Handles Vote. Does nothing once
/// this node is cut off. Loop thread only.
class Keeping {
 public:
  struct Events {
    /// The keeper has this view, which may be newer than roster.decided().
    std::function<void(const View& view)> decided;
    /// A read has ended, and roster.decided() is what the keeper has. `is_new`: this node did not know that view.
    std::function<void(bool is_new)> read;
    /// The keeper's view is not valid, or this process is no member of it.
    std::function<void(const base::Status& why)> cut_off;
  };
  using Done = std::function<void(const base::Status& status)>;

  Keeping(const base::Clock& clock, base::Link& link, const Roster& roster, const Standing& standing, const Contacts& contacts, Events events)
      : clock_(clock), link_(link), roster_(roster), standing_(standing), contacts_(contacts), events_(std::move(events)) {}

  /// Views are decided through this keeper instead of by the voters.
  void use(Keeper& keeper) { keeper_ = &keeper; }
  bool has_keeper() const { return keeper_ != nullptr; }
  /// On the master, with another keeper than the built-in one: writes the first view.
  void found(const View& view, Done done);
  /// This node has its first view, which is roster.decided().
  void begin();

  bool is_busy() const { return is_busy_; }
  /// Writes the view that is to follow roster.decided(). `done` runs unless this node is cut off meanwhile.
  void write(const View& next, Done done);
  void read();
  /// Reads at the next tick.
  void read_soon() { read_at_ = clock_.now(); }
  void stop_reading() { read_at_ = base::kNever; }
  /// This view is decided.
  void learn(const View& view);
  /// Tells the servers of the newest view. One that has an older one may count lost voters and find no majority.
  void tell_servers();
  void on_vote(base::Peer from, const wire::Vote& vote);

  /// Whether these processes can decide the view that follows roster.decided().
  bool is_quorum(const std::set<base::Peer>& voters) const;
  /// Of the last read or write of a keeper outside of the cluster; the built-in one has none.
  base::Status trouble() const { return quorum_ == nullptr ? trouble_ : base::Status(); }

  base::Nanos next_deadline() const { return std::min(read_at_, quorum_ != nullptr ? quorum_->next_deadline() : base::kNever); }
  void tick_quorum();
  bool is_read_due(base::Nanos now) const { return now >= read_at_; }

 private:
  void warn_of_few_voters() const;
  void send_vote(base::Peer to, const QuorumKeeper::Vote& vote);
  void take(const Keeper::Content& content);
  void read_again();

  const base::Clock& clock_;
  base::Link& link_;
  const Roster& roster_;
  const Standing& standing_;
  const Contacts& contacts_;
  const Events events_;
  wire::FrameBuilder builder_;
  std::unique_ptr<QuorumKeeper> quorum_;  ///< the built-in keeper; null: another one
  Keeper* keeper_ = nullptr;
  base::Status trouble_;   ///< of the last read or write
  uint64_t revision_ = 0;  ///< the keeper's, of the decided view
  bool is_busy_ = false;   ///< a read or a write is under way
  base::Nanos read_at_ = base::kNever;
};

}  // namespace mv::cluster
