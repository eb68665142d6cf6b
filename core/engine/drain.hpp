#pragma once
// The end of a server in good order: it hands its parts over to other servers before it leaves.

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.hpp"
#include "engine/checkpoint/coordinator.hpp"
#include "engine/checkpoint/participant.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/replica/parts.hpp"

namespace mv::engine {

/// What a process that is only a server does when it is to end:
///  1. it asks the master (Drain), which names a server that is to get a copy of each part that has none;
///  2. the parts are copied while workers go on: see replica/transfer.hpp;
///  3. when each part has an equal copy, it seals them: it takes no request and answers none. It waits until the copies have confirmed that, for
///     one of them may be lost, which nobody has noticed;
///  4. it asks the master to let the copies take over (HandOver). If one of them was lost meanwhile, it unseals the parts, and goes on with 2;
///  5. it waits until the other members have closed their connections, since they know where the parts are now.
/// Nothing is acknowledged here after 3, and the stand-ins serve nothing before 4. Clients repeat there what was not acknowledged, as after a loss.
/// With a checkpoint under way, 3 waits for a while. Loop thread only.
class Drain {
 public:
  using Done = std::function<void(const base::Status&)>;

  Drain(const base::Clock& clock, cluster::Cluster& cluster, replica::Parts& parts, const checkpoint::Participant& participant,
        const checkpoint::Coordinator& coordinator)
      : clock_(clock), cluster_(cluster), parts_(parts), participant_(participant), coordinator_(coordinator) {}

  /// Begins it, unless it is under way. `done` gets MV_OK when the parts are handed over and the others know it; MV_EINVAL for a worker or the
  /// master, MV_EUNREACHABLE without another server, MV_ENOSYS if a table can't be copied: then the node goes on serving.
  void begin(Done done);
  /// The parts are handed over: this node may leave.
  bool is_over() const { return stage_ == Stage::kTelling || stage_ == Stage::kOver; }
  /// This node serves nothing any more, though it may not know yet who does.
  bool has_sealed() const { return stage_ == Stage::kSealing || stage_ == Stage::kHandingOver || is_over(); }
  /// What it waits for, for a message; "" if it is not under way.
  std::string waits_for() const;

  /// The view has changed.
  void look();
  /// The master, who would decide, is lost.
  void master_lost(const base::Status& why);
  /// The master says that the copies have taken over.
  void handed_over();
  base::Nanos next_deadline() const { return next_look_; }
  void tick();

 private:
  class Answered;
  /// kFailed: nobody knows whether the copies have taken over, so the parts stay sealed.
  enum class Stage { kNot, kAsking, kMoving, kSealing, kHandingOver, kTelling, kOver, kFailed };

  base::Status check() const;
  void seal_if_copied();
  void hand_over_if_sealed();
  void go_on_serving();
  void asked(const base::Status& status);
  void answered(const base::Status& status);
  void end(const base::Status& status);

  const base::Clock& clock_;
  cluster::Cluster& cluster_;
  replica::Parts& parts_;
  const checkpoint::Participant& participant_;
  const checkpoint::Coordinator& coordinator_;
  Stage stage_ = Stage::kNot;
  std::vector<Done> done_;
  base::Status failure_;
  base::Nanos next_look_ = base::kNever;
  base::Nanos busy_until_ = base::kNever;  ///< when it goes on in spite of a checkpoint under way
};

}  // namespace mv::engine
