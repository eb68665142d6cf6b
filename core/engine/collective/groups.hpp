#pragma once
// The groups of a node: opens, shrinks and closes them together with their other members, and finds them by number.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "engine/cluster/cluster.hpp"
#include "engine/collective/group.hpp"

namespace mv::collective {

using GroupRef = std::shared_ptr<Group>;

/// A node's groups. A group's number is derived from its members and from how many times they have tried to open one,
/// so all members know it without a message. A group is open when all members have reported that they opened it. If a
/// member gives up before, all continue with the next number. Members connect to each other from then on, and each
/// detects the loss of another one independently, also that of the cluster's master. Loop thread only.
class Groups {
 public:
  using Opened = std::function<void(base::Result<GroupRef>)>;

  Groups(const base::Clock& clock, cluster::Cluster& cluster, rpc::Client& client, rpc::Server& server, base::Pool& pool)
      : clock_(clock), cluster_(cluster), server_(server), pool_(pool), sender_(client) {}

  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;
  ~Groups() {
    for (const auto& [id, group] : groups_) group->forget();  // callers may hold groups for longer
  }

  /// Sets the costs for groups that are opened from now on and in which this rank is the lowest.
  void choose_by(const Basis& basis) { basis_ = basis; }
  const Basis& basis() const { return basis_; }
  /// The operations of groups that are opened from now on are recorded.
  void trace_to(base::TraceRing* trace) { trace_ = trace; }

  /// Opens a group of these workers, which are in the order of their ranks and include this one. `opened` ends `call`.
  void open(const base::OperationRef& call, std::vector<base::Peer> peers, Opened opened);
  /// Opens a group of the ranks that no survivor has lost. If the group from an earlier shrink is broken, shrinks that
  /// one instead.
  void shrink(const base::OperationRef& call, const GroupRef& group, Opened opened);
  /// Breaks and closes a group that was opened here but cannot be handed to its caller. A group that came from a shrink
  /// stays until its predecessor is closed. Shrinking the predecessor again then continues from this group, together
  /// with the other ranks, which know that it broke.
  void abandon(const GroupRef& group, const base::Status& why);
  void close(const GroupRef& group, const base::Status& gave_up = {});
  /// Breaks a group for all ranks, with this reason, and closes it.
  void abort(const GroupRef& group, const std::string& reason);
  /// Closes all groups. `left` runs once all sent messages have been taken.
  void leave(std::function<void()> left);

  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged);
  base::SinkRef place(const wire::Collect& collect, size_t bytes);
  void lost(base::Peer peer, const base::Status& why);

  /// The groups that this node is in or is opening.
  std::vector<GroupState> reports() const;
  std::vector<cluster::Wait> waits() const;

  base::Nanos next_deadline() const;
  void tick();

 private:
  /// The call that waits for an opening or a shrink, and the handle by which it can be withdrawn.
  struct Caller {
    base::OperationRef call;
    std::shared_ptr<base::Work> work;
  };
  /// A group that not all members have opened yet.
  struct Opening {
    Caller caller;
    GroupRef group;
    Opened opened;
    GroupRef shrunk;  ///< the group whose survivors these are, or null. It is shrunk again if one is lost meanwhile
  };
  struct Shrinking {
    Caller caller;
    GroupRef group;
    Opened opened;
  };
  /// A closed group whose decision about its survivors other ranks may still request.
  struct Past {
    uint32_t rank = 0;
    Agreement::Ranks decided;
  };

  GroupRef add(uint64_t id, std::vector<base::Peer> peers);
  Caller begin(const base::OperationRef& call);
  void withdraw(const base::Operation& call, mv_status code);
  void begin_opening(Opening opening);
  void shrunk(const Shrinking& shrinking, const base::Result<Agreement::Ranks>& ranks);
  uint64_t next_number(const std::vector<base::Peer>& peers);
  void check_opened(uint64_t id);
  void reopen(uint64_t id);
  void fail_opening(uint64_t id, const base::Status& why);
  std::string missing(const Opening& opening) const;
  GroupRef survivors_of(Group& group) const;
  void tell_opened(base::Peer to, uint64_t id, uint32_t rank);
  void on_stranger(base::Peer from, const wire::GroupNote& note);

  const base::Clock& clock_;
  cluster::Cluster& cluster_;
  rpc::Server& server_;
  base::Pool& pool_;
  Sender sender_;
  Basis basis_;
  base::TraceRing* trace_ = nullptr;
  std::map<uint64_t, GroupRef> groups_;
  std::map<uint64_t, Opening> openings_;
  std::map<uint64_t, Shrinking> shrinkings_;
  std::map<std::vector<base::Peer>, uint64_t> tried_;       ///< by members: groups tried so far
  std::set<uint64_t> given_up_;                             ///< by other members, before this node opened them
  std::map<uint64_t, std::map<base::Peer, Basis>> here_;    ///< by number: the costs of each member that has opened it
  std::map<uint64_t, Past> past_;
};

}  // namespace mv::collective
