#pragma once
// Finding each other, ranks, and who is still there.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "engine/cluster/admission.hpp"
#include "engine/cluster/barrier.hpp"
#include "engine/cluster/view.hpp"
#include "engine/rpc/client.hpp"
#include "engine/rpc/server.hpp"

namespace mv::cluster {

/// What this node brings to the cluster.
struct Self {
  base::Peer peer = base::kNobody;
  int64_t rank = -1;  ///< the one it wants; the master has 0
  int32_t role = MV_ROLE_ALL;
  uint32_t nodes = 1;
  bool sync = false;
  bool sync_said = true;  ///< else it takes what the others say
  bool is_master = true;
  std::string master;   ///< the master's address, for the others
  std::string address;  ///< where this node listens
  std::string host;
  uint32_t pid = 0;
  base::Nanos init_timeout = std::chrono::seconds(60);
  base::Nanos heartbeat_timeout = std::chrono::seconds(5);
  base::Nanos stuck_after = std::chrono::seconds(10);  ///< what waits so long is told in the log
};

/// Everyone joins at the master, rank 0, which answers all when all have arrived. Then whoever need each other connect, the
/// higher rank calling the lower, and tell each other that they know the view (a Ping). After that: pings, losses, departures,
/// and new processes in the place of lost workers.
/// Loop thread only.
class Cluster {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// The ranks are known; requests may arrive from now on.
    virtual void on_view(const View& view) = 0;
    /// All whom this node needs are there and ready.
    virtual void on_ready() = 0;
    /// It will not come to that.
    virtual void on_failed(const base::Status& why) = 0;
    /// Once for each member, besides this node.
    virtual void on_member_finished(const Member& member) = 0;
    virtual void on_member_lost(const Member& member, const base::Status& why) = 0;
    /// A new process has taken the place of a lost worker.
    virtual void on_member_joined(const Member& member) = 0;
    /// The master has told how things stand, or is gone itself: all_workers_gone() may have changed.
    virtual void on_news() = 0;
  };

  Cluster(const base::Clock& clock, base::Link& link, rpc::Client& client, rpc::Server& server, Owner& owner, Self self);

  void start();
  const View& view() const { return view_; }
  base::Peer master() const { return master_; }
  /// True when no worker will ask for anything any more. That is the master's to say while it is there: it may have given a lost worker's
  /// place to another process of which this node does not know yet, though it has seen all others leave.
  bool all_workers_gone() const;
  /// Marks this node's own worker as finished, before it tells the others.
  void finish_self();

  /// Asks the master for a barrier; all of this worker's adds are applied by now.
  void barrier(rpc::PendingRef pending);
  /// Tells the master and every server that this worker has finished; a pending each.
  void leave(const std::vector<rpc::PendingRef>& pendings);
  /// This node and that member have something to say to each other, besides what all have; both of them are to say so.
  void want(base::Peer peer);
  /// To whom leave() will speak: servers, the master and who is wanted, as far as they are there.
  std::vector<base::Peer> leave_targets() const;

  void on_connected(base::Peer peer, const std::string& address);
  void on_dial_failed(const std::string& address, const base::Status& why);
  void on_lost(base::Peer peer, const base::Status& why);
  /// Anything came from this peer.
  void heard(base::Peer peer);
  /// A member of the view that is not lost.
  bool is_member(base::Peer peer) const;
  /// Whether this peer may send messages of this kind.
  bool may_send(base::Peer peer, wire::Body body) const;
  /// A message has come from somebody who is no member. True if it is to be heard; else it was refused, or dropped because the sender may
  /// be a member by a view that has yet to come: then it is asked for again. Neither costs memory.
  bool hears_stranger(base::Peer from, const wire::Message& message);

  /// "joining", "connecting", "ready" or "failed".
  const char* phase() const;
  bool is_master() const { return self_.is_master; }
  const Self& self() const { return self_; }
  /// How long nothing has come from a peer, as far as note_silence() has noted it; nothing if there is no connection with it.
  std::optional<base::Nanos> silence(base::Peer peer) const;
  /// From time to time: messages themselves are not timed.
  void note_silence();
  /// The master's: while joining, who has not arrived; else "".
  std::string missing_joiners() const;
  /// The master's: those who wait in barriers.
  std::vector<Wait> waits() const { return barrier_.waits(clock_.now()); }

  void on_request(const rpc::Asked& asked, const wire::Message& request);
  bool on_cancel(const rpc::Asked& asked);
  void on_view(base::Peer from, const wire::View& view);
  void on_ping(base::Peer from, const wire::Ping& ping);

  base::Nanos next_deadline() const;
  void tick();

  /// Asks everyone whom there is a connection with for an answer at once.
  void ask_all();
  /// How many of them have not answered yet.
  size_t unanswered() const;
  /// How long this peer took for its answer; kNever if it has not answered. Nothing where there is no connection.
  std::optional<base::Nanos> round_trip(base::Peer peer) const;

 private:
  class JoinPending;
  struct Joiner {
    Member member;
    int64_t wants_rank = -1;
    rpc::Asked asked;
  };
  struct Contact {
    bool connected = false;
    std::string address;  ///< where it is, by the transport's account
    uint64_t epoch = 0;  ///< of the view that it knows
    bool spoke = false;     ///< since the last beat
    base::Nanos heard{0};
    bool spoke_lately = false;  ///< since note_silence()
    base::Nanos noted{0};       ///< when that last found that it had
    bool wanted = false;    ///< see want()
    // of somebody who is no member:
    base::Nanos met{0};     ///< when it was connected first
    rpc::Seq dropped = 0;   ///< the first of its requests that was dropped
    uint32_t messages = 0;  ///< since the last beat
    uint64_t question = 0;  ///< the number that is to come back; 0: nothing is
    base::Nanos asked{0}, round_trip = base::kNever;
  };

  // the master's part
  void join(const rpc::Asked& asked, const wire::Join& request);
  base::Status check_joiner(base::Peer joiner, const wire::Join& request);
  void warn_of_loopback() const;
  Member* vacancy(const wire::Join& request);
  void rejoin(const rpc::Asked& asked, const wire::Join& request, Member& place);
  void complete_if_all_here();
  void publish();
  std::string arrivals() const;
  void leave_asked(const rpc::Asked& asked);
  // everyone's
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
  void tell_of_arrivals(base::Nanos now);
  bool needs(const Member& member) const;
  bool ended_unmet(const Member& member) const;
  bool is_wanted(base::Peer peer) const;
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
  bool told_gone_ = false;  ///< View::workers_gone() of what the master told last
  Barrier barrier_;
  base::Peer master_ = base::kNobody;
  bool sync_ = false, sync_said_ = false;  ///< the master: what was said so far
  std::vector<Joiner> joiners_;
  std::map<base::Peer, Contact> contacts_;
  uint64_t questions_ = 0;
  std::map<std::string, base::Nanos> redial_;  ///< addresses to call again, and when
  std::shared_ptr<JoinPending> joining_;
  base::Status last_dial_;
  base::Nanos give_up_ = base::kNever;  ///< joining has failed by then
  base::Nanos started_ = base::kNever, next_beat_{0}, last_beat_{0};
  base::Nanos notice_at_ = base::kNever;  ///< the master, while joining
  enum class Phase { kJoining, kConnecting, kReady, kFailed } phase_ = Phase::kJoining;
};

}  // namespace mv::cluster
