#pragma once
// Draining: a server hands its parts over to other servers before it leaves.

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "engine/checkpoint/coordinator.hpp"
#include "engine/checkpoint/participant.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/replica/parts.hpp"

namespace mv::engine {

/// Gives parts to other servers. The drain of a process that is only a server gives away all of them:
///  1. It asks the master (Drain). The master chooses a server for a copy of each part that has none.
///  2. The parts are copied while workers continue: see replica/transfer.hpp.
///  3. When each part has an equal copy, the server seals its parts: they take no requests and answer none. It waits
///     until the copies have confirmed that, because one of them may have been lost without anybody having noticed.
///  4. It asks the master to let the copies take over (HandOver). If a copy was lost meanwhile, the server unseals the
///     parts, and continues with 2.
///  5. It waits until the other members have closed their connections, because they then know where the parts are.
/// This server acknowledges nothing after 3, and the stand-ins serve nothing before 4. Clients repeat there what was not
/// acknowledged, as after a loss. If a checkpoint is in progress, 3 waits for it for a while, and none begins here meanwhile.
///
/// A server that stays gives parts to others by 2 to 4 alone, when new processes have taken the places of those that had
/// handed them over, or have joined beyond: see cluster::name_next_backups(). Loop thread only.
class Drain {
 public:
  using Done = std::function<void(const base::Status&)>;

  Drain(const base::Clock& clock, cluster::Cluster& cluster, replica::Parts& parts, const checkpoint::Participant& participant,
        checkpoint::Coordinator& coordinator)
      : clock_(clock), cluster_(cluster), parts_(parts), participant_(participant), coordinator_(coordinator) {}

  /// Begins the drain, unless it has begun. `done` gets MV_OK when the parts are handed over and the other members know
  /// it. After an error, the node continues to serve: that of why_never(); MV_ESTATE for a worker that has not finished;
  /// MV_EUNREACHABLE without another server.
  void begin(Done done);
  /// MV_EINVAL if this node can never drain: it is no server. MV_ESTATE while it is joining. MV_EUNREACHABLE for a worker,
  /// if there is no other server.
  base::Status why_never() const;
  /// The parts are handed over: this node may leave.
  bool is_over() const { return stage_ == Stage::kTelling || stage_ == Stage::kOver; }
  /// This node has stopped serving. It may not know the new servers of its parts yet.
  bool has_sealed() const { return stage_ == Stage::kSealing || stage_ == Stage::kHandingOver || stage_ == Stage::kFailed || is_over(); }
  /// What the drain waits for, for a message; "" if there is no drain in progress.
  std::string waits_for() const;

  /// The view has changed: makes the steps that are possible now.
  void advance();
  /// The master, which would decide, is lost.
  void master_lost(const base::Status& why);
  /// Another process is the master now. Repeats the requests that the former master has not answered.
  void ask_new_master();
  /// The master says that the copies have taken over.
  void handed_over();
  base::Nanos next_deadline() const { return next_look_; }
  void tick();

 private:
  class Answered;
  /// kFailed: it is unknown whether the copies have taken over, so the parts stay sealed.
  enum class Stage { kNot, kAsking, kMoving, kSealing, kHandingOver, kTelling, kOver, kFailed };

  void seal_if_copied();
  void hand_over_if_sealed();
  void go_on_serving();
  void given_back();
  void hold_checkpoints(bool hold);
  void asked(const base::Status& status);
  void answered(const base::Status& status);
  bool repeat_later(const base::Status& status);
  void end(const base::Status& status);

  const base::Clock& clock_;
  cluster::Cluster& cluster_;
  replica::Parts& parts_;
  const checkpoint::Participant& participant_;
  checkpoint::Coordinator& coordinator_;
  Stage stage_ = Stage::kNot;
  bool leaves_ = false;           ///< begin() was called
  std::vector<uint32_t> given_;   ///< from kSealing on: the parts that are given away
  bool is_accepted_ = false;      ///< the master has given the parts to others, in a view that has not come yet
  std::vector<Done> done_;
  base::Status failure_;
  base::Nanos next_look_ = base::kNever;
  uint64_t requests_ = 0;         ///< to the master: only the answer to the last one counts
  bool asks_again_ = false;       ///< at next_look_, the master gets the last request again
  base::Nanos busy_until_ = base::kNever;  ///< when it continues in spite of a checkpoint in progress
};

}  // namespace mv::engine
