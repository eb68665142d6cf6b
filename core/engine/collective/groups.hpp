#pragma once
// The groups of a node: opens, shrinks, grows and closes them together with their other members, and finds them by
// number. opening.cpp has the openings, growth.cpp the newcomers, groups.cpp the rest.

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/cluster/cluster.hpp"
#include "engine/collective/group.hpp"
#include "engine/collective/note.hpp"

namespace mv::collective {

using GroupRef = std::shared_ptr<Group>;

/// How often a newcomer checks whether its view is new enough for an invitation.
inline constexpr base::Nanos kLookAgain = std::chrono::milliseconds(10);
/// The shortest time-out for the opening of a group on which its members have agreed.
inline constexpr base::Nanos kTimeToOpen = std::chrono::seconds(2);
/// After a member has ended, how long one that opens a group with it waits for rank 0's word that it had opened it.
inline constexpr base::Nanos kTimeToHear = std::chrono::seconds(10);
/// How often rank 0 of a group that is opening tells the others which ranks are missing, if that has changed.
inline constexpr base::Nanos kTellMissing = std::chrono::milliseconds(250);

/// A node's groups. A group's number is derived from its members and from how many times they have tried to open one,
/// so all members know it without a message. Each member tells the group's rank 0 that it opens the group. Once all have,
/// rank 0 tells them that it is open. If a member gives up before, all continue with the next number; if one is gone, all
/// fail. Two members connect when one of them first has a message for the other, so a group of n ranks has some n log n
/// connections. A member notices the loss of another one by its connection with it, and tells all; rank 0 of an open group
/// is connected with all. The master tells of each loss, too, and what it has told is not repeated. One that waits in vain
/// soon has a message for the rank that it waits for (Group::notify_awaited()). Loop thread only.
class Groups {
 public:
  using Opened = std::function<void(base::Result<GroupRef>)>;

  Groups(const base::Clock& clock, cluster::Cluster& cluster, rpc::Client& client, rpc::Server& server, base::Pool& pool)
      : clock_(clock), cluster_(cluster), server_(server), pool_(pool), sender_(client, [this](base::Peer peer) { return cluster_.is_member(peer); }) {}

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
  /// What a member wants of a group that grows.
  struct Growth {
    std::string name;   ///< the name that newcomers use
    uint32_t size = 0;  ///< the least number of ranks
  };
  /// Like shrink(), but also adds the newcomers that have asked all survivors by this name. Waits until the group has
  /// the wanted size.
  void grow(const base::OperationRef& call, const GroupRef& group, Growth growth, Opened opened);
  /// Asks the members of the group that grows by this name to add this node, and opens the group with them.
  void join(const base::OperationRef& call, const std::string& name, Opened opened);
  /// How many newcomers have asked this node by this name, besides the group's own ranks.
  size_t newcomers(const Group& group, const std::string& name) const { return wish_of(group, {name, 0}).newcomers.size(); }
  /// A process has replaced a lost one.
  void joined(const cluster::Member& member);
  /// Breaks and closes a group that was opened here but cannot be returned to its caller. A group that came from a
  /// shrink stays until its predecessor is closed. Shrinking the predecessor again then continues from this group,
  /// together with the other ranks, which know that it broke.
  void abandon(const GroupRef& group, const base::Status& why);
  void close(const GroupRef& group, const base::Status& gave_up = {});
  /// Breaks a group for all ranks, with this reason, and closes it.
  void abort(const GroupRef& group, const std::string& reason);
  void close_all();
  /// Closes all groups. `left` runs once all sent messages have been taken.
  void leave(std::function<void()> left);

  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged);
  base::SinkRef place(const wire::Collect& collect, size_t bytes);
  /// The process is gone. `all_hear`: all members hear of it without this node.
  void lost(base::Peer peer, const base::Status& why, bool all_hear);
  /// No process is the master any more.
  void master_lost();
  /// The process has ended properly.
  void finished(base::Peer peer, const base::Status& why);

  /// The groups of which this node is a member, or which it is opening.
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
    bool joins = false;  ///< this node is a newcomer
    std::optional<Growth> growth = {};  ///< how to agree again if a rank is lost meanwhile; nothing: to shrink
    // on another rank than 0: whom rank 0 waits for, and how many these are; not all have to be listed
    std::vector<base::Peer> missing = {};
    size_t missing_count = 0;
    // on rank 0: how many had opened it when it told the others, and when that was
    size_t here_told = 0;
    base::Nanos told{0};
    base::Status left{};                    ///< a member that has ended: it has opened the group before, or will never open it
    base::Nanos left_deadline = base::kNever;
    /// A group on which the members have agreed opens soon. Its time-out does not depend on how long they have waited
    /// before.
    base::Nanos deadline() const {
      const base::Nanos given = caller.call->deadline();
      return std::min(left_deadline, is_first() ? given : std::max(given, group->made() + kTimeToOpen));
    }
    bool is_first() const { return shrunk == nullptr && !joins; }
  };
  struct Shrinking {
    Caller caller;
    GroupRef group;
    std::optional<Growth> growth;
    Opened opened;
  };
  /// An invitation to a group that has grown.
  struct Invitation {
    Members members;
    uint64_t epoch = 0;
  };
  /// A call of join(), from its beginning to its end.
  struct Joining {
    Caller caller;
    Opened opened;
    std::optional<Invitation> invited;  ///< an invitation that waits for a newer view
    /// The groups to which this node was invited. There are several if a rank made a decision and was lost before the
    /// others knew it. The first group that opens counts.
    std::vector<GroupRef> tried;
  };

  GroupRef add(Members members);
  static uint64_t number_of(const std::vector<base::Peer>& peers, uint64_t salt);
  Members all_of(const std::vector<base::Peer>& peers) const;
  static Members members_after(const Group& group, const Agreement::Decision& decided);
  void agree(const base::OperationRef& call, const GroupRef& group, std::optional<Growth> growth, Opened opened);
  Caller begin(const base::OperationRef& call);
  void withdraw(const base::Operation& call, mv_status code);
  void begin_opening(Opening opening);
  void shrunk(const Shrinking& shrinking, const base::Result<Agreement::Decision>& decided);
  base::Status missing(const Shrinking& shrinking) const;
  uint64_t next_number(const std::vector<base::Peer>& peers, base::Status& gone);
  void tell_gone(const std::vector<base::Peer>& peers, const base::Status& why);
  void check_opened(uint64_t id);
  void reopen(uint64_t id);
  void fail_opening(uint64_t id, const base::Status& why);
  void look_for_lost(uint64_t id, const std::set<base::Peer>& quitters = {});
  std::string missing(const Opening& opening) const;
  std::vector<base::Peer> missing_peers(const Opening& opening, size_t most = SIZE_MAX) const;
  void tell_missing(const Opening& opening, base::Peer to);
  void tell_missing_to_all(base::Nanos now);
  void meet_missing(const Opening& opening);
  base::Status gone_of(const std::vector<base::Peer>& peers) const;
  void end(const GroupRef& group, Group::Tell tell, const base::Status& gave_up);
  GroupRef survivors_of(Group& group) const;
  void tell_opened(base::Peer to, uint64_t id, uint32_t rank);
  void on_stranger(base::Peer from, const wire::GroupNote& note);
  void on_late(base::Peer from, uint64_t id);
  void hear_missing(Opening& opening, const wire::GroupNote& note) const;
  void forget_wishes(base::Peer peer);

  // newcomers, seen by the members
  Agreement::Wish wish_of(const Group& group, const Growth& growth) const;
  void on_wish(base::Peer from, const wire::GroupNote& note);
  void wishes_changed(const std::string& name);
  void invite(const Members& members, const std::string& name);
  // on a newcomer
  void tell_wish(base::Peer to, const std::string& name, bool wants);
  void on_invitation(base::Peer from, const wire::GroupNote& note);
  bool try_invitation(const std::string& name);
  void drop_tries(Joining& joining);
  void end_join(const std::string& name, const base::Result<GroupRef>& result);
  void expire_joins(base::Nanos now);

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
  std::map<uint64_t, base::Status> given_up_;               ///< by other members, before this node opened them. An error: because of this loss
  std::map<uint64_t, std::map<base::Peer, Basis>> here_;    ///< by number: the costs of each member that has opened it
  std::map<uint64_t, Note> past_;   ///< what this node said when it closed a group: the newest ones
  std::deque<uint64_t> past_order_;
  std::map<std::string, std::map<base::Peer, uint32_t>> wishes_;  ///< by name: newcomers, with their ranks in the cluster
  std::map<std::string, Joining> joinings_;                       ///< by name
  std::map<uint64_t, std::set<base::Peer>> quitters_;             ///< by group: newcomers that have given up before this node opened it
};

}  // namespace mv::collective
