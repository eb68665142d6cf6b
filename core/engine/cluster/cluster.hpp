#pragma once
// Membership: joining, ranks, heartbeat, and the detection of lost members.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "engine/cluster/admission.hpp"
#include "engine/cluster/arrivals.hpp"
#include "engine/cluster/barrier.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/self.hpp"
#include "engine/cluster/view.hpp"
#include "engine/rpc/client.hpp"
#include "engine/rpc/server.hpp"

namespace mv::cluster {

/// The membership protocol of one node. All processes join at the master, rank 0, which answers when all of them have
/// arrived. Then the members that need each other connect, the higher rank dialing the lower, and confirm to each other
/// with a Ping that they know the view. After that, the protocol handles heartbeats, losses, departures, and new
/// processes that take the places of lost workers. Loop thread only.
class Cluster {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// The ranks are known; requests may arrive from now on.
    virtual void on_view(const View& view) = 0;
    /// All members that this node needs are connected and ready.
    virtual void on_ready() = 0;
    /// on_ready() will never be called.
    virtual void on_failed(const base::Status& why) = 0;
    /// Each is called at most once for a member; on_member_finished() also for this node.
    virtual void on_member_finished(const Member& member) = 0;
    virtual void on_member_lost(const Member& member, const base::Status& why) = 0;
    /// A new process has taken the place of a lost worker or server.
    virtual void on_member_joined(const Member& member) = 0;
    /// This node has lost a server; its worker may have finished before. Then the master may declare it lost, and name a stand-in: see
    /// Member::is_out.
    virtual void on_server_missed(const Member&, const base::Status&) {}
    /// The master has decided who serves the part of this server from now on, who keeps a copy of it, or who is to get one.
    virtual void on_part_moved(const Member& /*part*/) {}
    /// A server is to end, and others are being given its parts.
    virtual void on_member_draining(const Member& /*member*/) {}
    /// The master has given this node's parts to their new servers: see hand_over().
    virtual void on_drained() {}
    /// A view came from the master, or the master is lost: all_workers_gone() may have changed.
    virtual void on_news() = 0;
    /// The waits of all members that this node knows of, for messages.
    virtual std::vector<Wait> known_waits() const { return {}; }
    /// The call in which this node's program waits, for messages of other nodes; empty if there is none.
    virtual std::string own_wait() const { return {}; }
  };

  Cluster(const base::Clock& clock, base::Link& link, rpc::Client& client, rpc::Server& server, Owner& owner, Self self);

  void start();
  const View& view() const { return view_; }
  base::Peer master() const { return master_; }
  /// True when no worker will make requests any more. While the master is connected, it decides this: it may have given
  /// the place of a lost worker to a process that this node does not know yet, although this node has seen all other
  /// workers leave.
  bool all_workers_gone() const;
  /// Marks this node as finished in its own view.
  void finish_self();

  /// Enters the barrier at the master. All adds of this worker must be applied before.
  void barrier(rpc::PendingRef pending);
  /// Notifies all leave_targets() that this worker has finished, with one of `pendings` for each.
  void leave(const std::vector<rpc::PendingRef>& pendings);
  /// Tells all connected members that this node has failed, and why. Each closes its connection then; `told` runs when
  /// all have, once. From now on losses are not reported to the owner.
  void abort(const std::string& why, std::function<void()> told);
  /// Asks the master to name servers for copies of the parts that this node serves, since it is to end.
  void drain(rpc::PendingRef pending);
  /// Asks the master to let the copies of these parts (1 + ranks) take over; this node serves nothing any more. on_drained() follows, or `pending`
  /// ends with an error.
  void hand_over(const std::vector<uint32_t>& parts, rpc::PendingRef pending);
  /// The parts are handed over: `told` runs when all members but the master have closed their connections, as they know it. From now on losses
  /// are not reported to the owner.
  void await_goodbyes(std::function<void()> told);
  /// Connects this node with a member that its role alone would not connect it with. kHigherRank: both sides call it.
  /// kSelf: the other side may not know that it is wanted; it should call this too once it does.
  enum class Dialer { kHigherRank, kSelf };
  void want(base::Peer peer, Dialer dialer = Dialer::kHigherRank);
  /// The peers that leave() notifies: the servers, the master and wanted peers that are not lost and can be reached.
  std::vector<base::Peer> leave_targets() const;

  void on_connected(base::Peer peer, const std::string& address);
  void on_dial_failed(const std::string& address, const base::Status& why);
  void on_lost(base::Peer peer, const base::Status& why);
  /// A message, or a part of one, came from this peer.
  void heard(base::Peer peer) { contacts_.heard(peer); }
  /// True for a member of the view that is not lost.
  bool is_member(base::Peer peer) const;
  /// Whether this peer is one of these senders.
  bool may_send(base::Peer peer, Sender sender) const;
  /// Decides about a message from a peer that is not a member. True: process it. False: it was refused, or dropped
  /// because the sender may be a member of a view that has not arrived yet; in that case it is requested again later.
  /// Neither costs memory. `sender`: the permitted senders of the message.
  bool hears_stranger(base::Peer from, const wire::Message& message, Sender sender);

  /// "joining", "connecting", "ready" or "failed".
  const char* phase() const;
  /// Not all processes have arrived at the master yet, as far as this node knows.
  bool is_joining() const { return view_.members.empty(); }
  bool is_master() const { return self_.is_master; }
  const Self& self() const { return self_; }
  /// The connections of this node.
  Contacts& contacts() { return contacts_; }
  const Contacts& contacts() const { return contacts_; }
  /// On the master while joining: which processes have not arrived; otherwise "".
  std::string missing_joiners() const;
  /// On the master: the workers that wait in barriers.
  std::vector<Wait> waits() const { return barrier_.waits(clock_.now()); }

  void on_request(const rpc::Asked& asked, const wire::Message& request);
  void on_cancel(const rpc::Asked& asked);
  void on_view(base::Peer from, const wire::View& view);
  void on_ping(base::Peer from, const wire::Ping& ping);
  void on_abort(base::Peer from, const wire::Abort& abort);
  void on_unreachable(base::Peer from, const wire::Unreachable& note);

  base::Nanos next_deadline() const;
  void tick();

  /// Sends a ping that asks for an answer to all connected peers.
  void ask_all();

 private:
  class JoinPending;

  // on the master
  /// A Join that waits: the process whose place is wanted may be dead, which is not noticed yet.
  struct Early {
    rpc::Asked asked;
    std::vector<std::byte> header;
    base::Nanos until;
  };
  void join(const rpc::Asked& asked, const wire::Message& message);
  bool may_become_vacant(const wire::Join& request, bool asked) const;
  void settle_early();
  base::Status check_joiner(base::Peer joiner, const wire::Join& request);
  Member* vacancy(const wire::Join& request);
  void rejoin(const rpc::Asked& asked, const wire::Join& request, Member& place);
  void complete_if_all_here();
  void publish();
  std::string doing(base::Peer peer, const std::vector<Wait>& waits) const;
  void leave_asked(const rpc::Asked& asked);
  bool declare_out(Member& member);
  void copied(const rpc::Asked& asked, const wire::Copied& note);
  void drain_asked(const rpc::Asked& asked);
  void hand_over_asked(const rpc::Asked& asked, const wire::HandOver& request);
  bool goes_on_without(const Member& member, base::Peer peer) const;
  // on every member
  void call_master();
  void joined(const base::Status& status, const wire::Message* answer);
  void adopt(View view);
  void ready_if_all_ready();
  void fail(const base::Status& why);
  void mark_lost(base::Peer peer, const base::Status& why);
  void mark_finished(base::Peer peer);
  void replace(const Member& member);
  void send_ping(base::Peer to, uint64_t asks = 0, uint64_t answers = 0);
  void send_view(base::Peer to);
  void beat(base::Nanos now);
  void report_unreachable();
  void tell_of_arrivals(base::Nanos now);
  void abort_if_all_told();
  bool needs(const Member& member) const;
  bool ended_unmet(const Member& member) const;
  void turn_away(base::Peer peer, rpc::Seq request, const base::Status& why);
  void welcome();
  void watch_strangers(base::Nanos now);
  bool may_yet_join(base::Peer peer) const;
  base::Nanos interval() const { return self_.heartbeat_timeout / 10; }

  const base::Clock& clock_;
  base::Link& link_;
  rpc::Client& client_;
  rpc::Server& server_;
  Owner& owner_;
  const Self self_;
  wire::FrameBuilder builder_;
  View view_;
  uint64_t joined_epoch_ = 0;
  bool told_gone_ = false;  ///< View::workers_gone() of the master's last view
  Barrier barrier_;
  base::Peer master_ = base::kNobody;
  Arrivals arrivals_;  ///< on the master
  Contacts contacts_;
  std::vector<Early> early_;  ///< on the master
  base::Nanos settle_at_ = base::kNever;
  std::map<std::string, base::Nanos> redial_;  ///< addresses to dial again, and when
  std::shared_ptr<JoinPending> joining_;
  base::Status last_dial_;
  base::Nanos give_up_ = base::kNever;  ///< deadline of joining
  base::Nanos started_ = base::kNever, next_beat_{0}, last_beat_{0};
  base::Nanos notice_at_ = base::kNever;  ///< the master while joining: when to log the missing processes
  std::function<void()> aborted_;  ///< see abort() and await_goodbyes()
  bool is_drained_ = false;        ///< this node has handed its parts over
  enum class Phase { kJoining, kConnecting, kReady, kFailed } phase_ = Phase::kJoining;
};

}  // namespace mv::cluster
