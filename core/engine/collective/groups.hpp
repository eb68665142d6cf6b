#pragma once
// A node's groups: opened together with their other members, found by their numbers, shrunk, closed.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "engine/cluster/cluster.hpp"
#include "engine/collective/group.hpp"

namespace mv::collective {

using GroupRef = std::shared_ptr<Group>;

/// A group's number is made of its members and of how often these have tried to open one before, so all of them know it without a word.
/// Opening it is done when all have said that they have; where one of them gives up before, all go on to the next number. Members are connected with each other from then on, and whoever is lost is lost
/// to each of them by itself, the cluster's master like anybody else. Loop thread only.
class Groups {
 public:
  using Opened = std::function<void(base::Result<GroupRef>)>;

  Groups(const base::Clock& clock, cluster::Cluster& cluster, rpc::Client& client, rpc::Server& server, base::Pool& pool)
      : clock_(clock), cluster_(cluster), server_(server), pool_(pool), sender_(client) {}

  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;
  ~Groups() {
    for (const auto& [id, group] : groups_) group->forget();  // callers may hold them for longer
  }

  /// Of groups opened from now on in which this rank is the lowest.
  void choose_by(const Basis& basis) { basis_ = basis; }
  const Basis& basis() const { return basis_; }

  /// Among workers, in the order of their ranks, this one among them. `opened` ends `call`.
  void open(const base::OperationRef& call, std::vector<base::Peer> peers, Opened opened);
  /// A group of those who are not lost to any of them. Where the one that came of an earlier shrinking is broken, that one is shrunk.
  void shrink(const base::OperationRef& call, const GroupRef& group, Opened opened);
  /// For a group that was opened here and can't be handed to its caller: breaks it, and closes it. What came of a shrinking stays until the
  /// group before it is closed, so that shrinking that one again goes on from here with the others, who have heard that it broke.
  void abandon(const GroupRef& group, const base::Status& why);
  void close(const GroupRef& group, const base::Status& gave_up = {});
  /// Closes all; `left` runs once all that was sent has been taken.
  void leave(std::function<void()> left);

  static bool is_mine(const wire::Message& message) {
    return message.body_type() == wire::Body::Collect || message.body_type() == wire::Body::GroupNote;
  }
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload, const base::SinkRef& staged);
  base::SinkRef place(const wire::Collect& collect, size_t bytes);
  void lost(base::Peer peer, const base::Status& why);

  /// Of those that this node is in, or is opening.
  std::vector<GroupState> reports() const;
  std::vector<cluster::Wait> waits() const;

  base::Nanos next_deadline() const;
  void tick();

 private:
  /// Who waits for an opening or a shrinking, and what ends that before.
  struct Caller {
    base::OperationRef call;
    std::shared_ptr<base::Work> work;
  };
  /// One that not all have opened yet.
  struct Opening {
    Caller caller;
    GroupRef group;
    Opened opened;
    GroupRef shrunk;  ///< what this is the group of survivors of, or null: it is tried again without whoever is lost meanwhile
  };
  struct Shrinking {
    Caller caller;
    GroupRef group;
    Opened opened;
  };
  /// A closed group of which others may still want to know how it was decided to go on.
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
  std::map<uint64_t, GroupRef> groups_;
  std::map<uint64_t, Opening> openings_;
  std::map<uint64_t, Shrinking> shrinkings_;
  std::map<std::vector<base::Peer>, uint64_t> tried_;       ///< groups so far, of the same members
  std::set<uint64_t> given_up_;                             ///< by others, before this node came to open them
  std::map<uint64_t, std::map<base::Peer, Basis>> here_;    ///< by number: who has opened it, by what it would choose; also before this node has
  std::map<uint64_t, Past> past_;
};

}  // namespace mv::collective
