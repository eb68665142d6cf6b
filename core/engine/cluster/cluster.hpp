#pragma once
// Membership: joining, ranks, heartbeat, and the detection of lost members.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "engine/cluster/barrier.hpp"
#include "engine/cluster/connector.hpp"
#include "engine/cluster/contacts.hpp"
#include "engine/cluster/cut_off.hpp"
#include "engine/cluster/decisions.hpp"
#include "engine/cluster/departure.hpp"
#include "engine/cluster/disputes.hpp"
#include "engine/cluster/election.hpp"
#include "engine/cluster/endings.hpp"
#include "engine/cluster/founding.hpp"
#include "engine/cluster/heartbeat.hpp"
#include "engine/cluster/held_requests.hpp"
#include "engine/cluster/joining.hpp"
#include "engine/cluster/keeping.hpp"
#include "engine/cluster/master_calls.hpp"
#include "engine/cluster/newcomers.hpp"
#include "engine/cluster/news.hpp"
#include "engine/cluster/owner.hpp"
#include "engine/cluster/publisher.hpp"
#include "engine/cluster/readiness.hpp"
#include "engine/cluster/relocation.hpp"
#include "engine/cluster/role_transfer.hpp"
#include "engine/cluster/roster.hpp"
#include "engine/cluster/self.hpp"
#include "engine/cluster/standing.hpp"
#include "engine/cluster/strangers.hpp"
#include "engine/cluster/view.hpp"
#include "engine/rpc/client.hpp"
#include "engine/rpc/server.hpp"

namespace mv::cluster {

/// The membership protocol of one node. All processes join at the master, at first rank 0, which answers when all of
/// them have arrived. Each stays connected with the master, and they confirm to each other with a Ping that they know the
/// view. After that, the protocol handles heartbeats, losses, departures, and new processes that take the places of lost
/// ones. Other members connect when one of them first has a request for the other (see want()), so a cluster of n
/// processes starts with n - 1 connections.
///
/// A change of the membership is sent as the members that have changed since the view that the receiver has: see ViewLog.
/// The master knows that view from the receiver's pings and from what it has sent on this connection. A member that lacks
/// that view asks with a ping, and gets what has changed since its own, or the whole view.
///
/// Without replicas, the master decides about views alone, and after its loss nobody can join or pass a barrier. Workers
/// and servers connect with each other then, because no other process tells them which members have left. A master that drains first gives
/// its role to another server. With replicas, all servers are connected with each other and with all workers from the
/// start, since each may be the master one day. The master writes each view to a keeper before any process acts on it.
/// When the master is lost, another server takes its place. A member's view is then a decided one, plus the losses that
/// this node itself has noticed since.
///
/// This class connects the parts of the protocol, gives each of them its messages and its time, and applies what all of
/// them change: a member is lost, has finished or is replaced (losses.cpp), a newer view (views.cpp) or another master
/// (mastership.cpp). It handles View, Ping, Leave, Abort and Unreachable. The parts, each of which owns its own state:
///  - what this node knows: Roster, Standing, Contacts, News
///  - how it joins: Joining, Connector, Readiness; on the master Founding, Newcomers, Strangers
///  - how members hear of each other: Heartbeat, Publisher, Disputes
///  - what the master decides: Endings, Relocation, Barrier; with replicas by Decisions and Keeping
///  - another master: Election, RoleTransfer, HeldRequests, MasterCalls
///  - the end: Departure, CutOff
/// Loop thread only.
class Cluster {
 public:
  using Owner = cluster::Owner;

  Cluster(const base::Clock& clock, base::Link& link, rpc::Client& client, rpc::Server& server, Owner& owner, Self self);

  void start();
  /// The master is to be met at this address now. Does nothing once this process has its place.
  void ask_at(const std::string& address) { joining_.ask_at(address); }
  const View& view() const { return roster_.view(); }
  /// The view, in which no worker is lost only because this node has noticed that: see Owner::on_worker_lost().
  View certain_view() const { return roster_.certain_view(); }
  /// Whether this process has come to a cluster that was complete already: the first list of members is number 1.
  bool came_late() const { return standing_.joined_epoch() > 1; }
  base::Peer master() const { return roster_.master(); }
  /// The barriers that this worker has passed, with those that were over when it joined.
  uint64_t barriers_passed() const { return calls_.passed(); }
  /// True when no worker will make requests any more. While the master is connected, it decides this. Even if this node
  /// has seen all workers leave, the master may have given the place of a lost one to a process that this node does not
  /// know yet.
  bool all_workers_gone() const { return roster_.all_workers_gone(); }
  /// Marks this node as finished in its own view.
  void finish_self() { mark_finished(self_.peer); }

  /// Enters the barrier at the master. All adds of this worker must be applied before.
  void barrier(rpc::PendingRef pending) { calls_.barrier(std::move(pending)); }
  /// As rpc::Client::cancel() and abandon().
  void cancel_barrier(const rpc::Pending* pending) { calls_.cancel_barrier(pending); }
  void abandon_barrier(const rpc::Pending* pending, const base::Status& status) { calls_.abandon_barrier(pending, status); }
  /// Notifies all leave_targets() that this worker has finished, with one of `pendings` for each. Members that connect
  /// because the master is lost are notified, too.
  void leave(const std::vector<rpc::PendingRef>& pendings) { departure_.leave(pendings); }
  /// Tells all connected members that this node has failed, and why. Each closes its connection then; `told` runs when
  /// all have, once. From now on losses are not reported to the owner.
  void abort(const std::string& why, std::function<void()> told) { departure_.abort(why, std::move(told)); }
  /// Asks the master to choose servers for copies of the parts that this node serves, because this node is draining.
  void drain(rpc::PendingRef pending) { calls_.drain(std::move(pending)); }
  /// Asks the master for this number of servers, see begin_resize().
  void resize(uint32_t servers, rpc::PendingRef pending) { calls_.resize(servers, std::move(pending)); }
  /// On the master: if there are more servers than were asked for last, those with the highest ranks are to end.
  void end_surplus_servers() { relocation_.end_surplus(); }
  /// Asks the master to let the copies of these parts (1 + ranks) take over. This node has stopped serving them. If it
  /// is draining, either on_drained() follows, or `pending` ends with an error.
  void hand_over(const std::vector<uint32_t>& parts, rpc::PendingRef pending) { calls_.hand_over(parts, std::move(pending)); }
  /// The parts are handed over. `told` runs when all members know it and have closed their connections, except for the
  /// master that this node has asked. From now on losses are not reported to the owner.
  void await_goodbyes(std::function<void()> told);
  using Dialer = cluster::Dialer;
  /// Connects this node with a member that is not the master.
  void want(base::Peer peer, Dialer dialer = Dialer::kHigherRank) { connector_.want(peer, dialer); }
  /// Connects this node with all members for which it may have requests, and they for it.
  void connect_with_all();
  /// The number of those that are not connected.
  size_t unconnected() const { return roster_.unconnected(); }
  /// The peers that leave() notifies: the master, and the servers and wanted peers that this node is or will be connected
  /// with. The master tells the others.
  std::vector<base::Peer> leave_targets() const { return roster_.leave_targets(); }

  void on_connected(base::Peer peer, const std::string& address);
  void on_dial_failed(const std::string& address, const base::Status& why);
  void on_lost(base::Peer peer, const base::Status& why);
  /// A message, or a part of one, came from this peer.
  void heard(base::Peer peer) { contacts_.heard(peer); }
  /// True for a member of the view that is not lost.
  bool is_member(base::Peer peer) const { return roster_.is_member(peer); }
  /// Whether this peer is one of these senders.
  bool may_send(base::Peer peer, Sender sender) const { return roster_.may_send(peer, sender); }
  /// Decides about a message from a peer that is not a member. True: process it. False: it was refused, or it was
  /// dropped because the sender may be a member of a view that has not arrived yet. A dropped message is requested
  /// again later. Neither costs memory. `sender`: the permitted senders of the message.
  bool hears_stranger(base::Peer from, const wire::Message& message, Sender sender) { return strangers_.hears(from, message, sender); }

  /// "joining", "connecting", "ready" or "failed".
  const char* phase() const { return standing_.phase_name(); }
  /// As far as this node knows, not all processes have arrived at the master yet.
  bool is_joining() const { return roster_.view().members.empty(); }
  bool is_master() const { return roster_.is_master(); }
  /// Views are decided through a keeper, so the cluster may survive the loss of the master.
  bool is_kept() const { return roster_.is_kept(); }
  /// The master is lost, and another process may take its place.
  bool awaits_master() const { return election_.awaits_master(); }
  /// No process is or will be the master, as far as this node knows: requests to the master will not be answered.
  bool has_lost_master() const { return roster_.has_lost_master(); }
  /// While a loss is reported to the owner: the master has declared it, so all other members hear of it, too.
  bool all_hear() const { return is_master() || is_declared_; }
  /// With a keeper: the master is lost and awaited, or it can't decide about the members now, because the keeper, or most of
  /// those that vote, do not answer. It may decide later, or end: see Decisions::patience_until().
  bool awaits_decision() const { return awaits_master() || roster_.master_is_undecided() || decisions_.is_undecided(); }
  /// The newest view that is decided. view() may be between it and the one before, while owners hear of the changes.
  const View& decided() const { return roster_.decided(); }
  /// MV_OK, or why this node hears of no more decisions about the members.
  const base::Status& why_cut_off() const { return standing_.why_cut_off(); }
  /// Likewise, or why a server that ends may have ended without the others: it has lost the master, and workers whose loss nobody has decided.
  base::Status why_left_alone() const { return roster_.why_left_alone(); }
  /// This process was declared lost; or it is a master without a majority; or it is a server that no process can tell whether
  /// the workers that it has lost are lost. Other processes serve its parts, or may do so later.
  bool is_deposed() const { return standing_.is_deposed(); }
  /// Views are decided through this keeper instead of by the voters. The keeper must outlive this object. Before
  /// start().
  void use_keeper(Keeper& keeper) { keeping_.use(keeper); }
  const Self& self() const { return self_; }
  /// The connections of this node.
  Contacts& contacts() { return contacts_; }
  const Contacts& contacts() const { return contacts_; }
  /// The changes of the membership that this node's owner has reported.
  News& news() { return news_; }
  const News& news() const { return news_; }
  /// Requests for some number of servers that this node has accepted as the master.
  uint64_t resizes() const { return relocation_.resizes(); }
  /// On the master while joining: which processes have not arrived; otherwise "".
  std::string missing_joiners() const { return founding_.missing(); }
  /// On the master: the workers that wait in barriers.
  std::vector<Wait> waits() const { return barrier_.waits(clock_.now()); }

  void on_request(const rpc::Asked& asked, const wire::Message& request);
  void on_cancel(const rpc::Asked& asked);
  void on_view(base::Peer from, const wire::View& view, std::span<const std::byte> payload);
  void on_ping(base::Peer from, const wire::Ping& ping);
  void on_abort(base::Peer from, const wire::Abort& abort);
  void on_unreachable(base::Peer from, const wire::Unreachable& note);
  void on_vote(base::Peer from, const wire::Vote& vote) { keeping_.on_vote(from, vote); }

  base::Nanos next_deadline() const;
  void tick();

  /// Sends a ping that asks for an answer to all connected peers.
  void ask_all() { heartbeat_.ask_all(); }

 private:
  Keeping::Events keeping_events();
  std::string doing(base::Peer peer, const std::vector<Wait>& waits) const;
  void beat(base::Nanos now);
  base::Nanos keeping_deadline() const;
  void tick_keeping(base::Nanos now);
  // newer views
  void take_held(const View& view);
  void take_decided(const View& view);
  void take_view(const View& newer, bool workers_gone);
  void change_master(const View& newer);
  void follow_master();
  void miss_master(const base::Status& why);
  // members
  void mark_lost(base::Peer peer, const base::Status& why);
  void declare_lost(base::Peer peer, const base::Status& why);
  void mark_finished(base::Peer peer);
  void learn_finished(Member& worker);
  void replace(const Member& member);

  const base::Clock& clock_;
  base::Link& link_;
  rpc::Client& client_;
  rpc::Server& server_;
  Owner& owner_;
  const Self self_;
  wire::FrameBuilder builder_;
  Contacts contacts_;
  Standing standing_;
  Roster roster_;
  Publisher publisher_;
  HeldRequests held_requests_;
  Barrier barrier_;
  Keeping keeping_;
  Decisions decisions_;
  Election election_;
  MasterCalls calls_;
  Heartbeat heartbeat_;
  Disputes disputes_;
  Connector connector_;
  Joining joining_;
  Founding founding_;
  Newcomers newcomers_;
  Strangers strangers_;
  Readiness readiness_;
  Relocation relocation_;
  Departure departure_;
  Endings endings_;
  RoleTransfer role_transfer_;
  CutOff cut_off_;
  News news_;
  bool is_declared_ = false;  ///< see all_hear()
};

}  // namespace mv::cluster
