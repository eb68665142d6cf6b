#pragma once
// The members and the master, as this node knows them.

#include <string>
#include <vector>

#include "engine/cluster/contacts.hpp"
#include "engine/cluster/self.hpp"
#include "engine/cluster/sender.hpp"
#include "engine/cluster/standing.hpp"
#include "engine/cluster/view.hpp"

namespace mv::cluster {

/// Owns the view, with a keeper also the newest decided view, and the name of the master; and answers which members
/// this node needs, may hear, and has lost. A member's view is the decided one, plus the losses that this node itself
/// has noticed since. Sends nothing. Loop thread only.
class Roster {
 public:
  Roster(const Self& self, const Standing& standing, const Contacts& contacts) : self_(self), standing_(standing), contacts_(contacts) {}

  const Self& self() const { return self_; }
  View& view() { return view_; }
  const View& view() const { return view_; }
  /// This node itself; nullptr before it has a view.
  const Member* own() const { return view_.find(self_.peer); }

  /// Views are decided through a keeper, so the cluster may survive the loss of the master.
  bool is_kept() const { return decided_.epoch > 0; }
  /// The newest view that is decided. Without a keeper it is view().
  const View& decided() const { return is_kept() ? decided_ : view_; }
  void set_decided(const View& view) { decided_ = view; }
  /// The view, in which no worker is lost only because this node has noticed that: see Owner::on_worker_lost().
  View certain_view() const;
  /// Only this node, a server, has lost this worker so far.
  bool is_undecided_loss(const Member& member) const;

  base::Peer master() const { return master_; }
  bool is_master() const { return master_ == self_.peer && master_ != base::kNobody; }
  /// While joining: the process that is asked; kNobody: none is.
  void set_master(base::Peer peer) { master_ = peer; }
  /// This process is the master from this view on. Returns the former master.
  base::Peer change_master(base::Peer peer, uint64_t epoch);
  /// The first epoch of the present master; 0: it has been the master from the start.
  uint64_t master_since() const { return master_since_; }
  /// Without replicas: the role of the master is new, and the two are not connected yet.
  bool meets_master() const { return meets_master_; }
  void set_meets_master(bool meets) { meets_master_ = meets; }
  /// No process is or will be the master, as far as this node knows: requests to the master will not be answered.
  bool has_lost_master() const { return !is_master() && !meets_master_ && !contacts_.is_connected(master_); }
  /// As the master has said since its last view: it can't decide about the members now.
  bool master_is_undecided() const { return master_is_undecided_; }
  void set_master_is_undecided(bool undecided) { master_is_undecided_ = undecided; }
  /// View::workers_gone() of the master's last view.
  bool told_gone() const { return told_gone_; }
  void set_told_gone(bool gone) { told_gone_ = gone; }

  /// True for a member of the view that is not lost.
  bool is_member(base::Peer peer) const;
  /// Whether this peer is one of these senders.
  bool may_send(base::Peer peer, Sender sender) const;
  /// Whether this node is to be connected with that member.
  bool needs(const Member& member) const;
  /// Whether this node may have requests for that member, or the member for this node.
  bool may_need(const Member& member) const;
  /// True for a finished member that is not connected and not needed: no connection to it will ever be made.
  bool ended_unmet(const Member& member) const;
  /// Whether this node has to notice by itself that this peer is lost, although the two are not connected.
  bool judges_alone(base::Peer peer) const;
  /// Whether this node can get ready without that member, which is lost.
  bool goes_on_without(const Member& member) const;
  /// See Cluster::all_workers_gone(), leave_targets() and unconnected().
  bool all_workers_gone() const;
  std::vector<base::Peer> leave_targets() const;
  size_t unconnected() const;

  // texts
  /// The member that was lost before this one, as the end of a message; "": there is none.
  std::string lost_before(base::Peer peer) const;
  base::Status why_role_is_given() const;
  /// See Cluster::why_left_alone().
  base::Status why_left_alone() const;

 private:
  const Self& self_;
  const Standing& standing_;
  const Contacts& contacts_;
  View view_;
  View decided_;  ///< with a keeper; otherwise its epoch is 0
  base::Peer master_ = base::kNobody;
  uint64_t master_since_ = 0;
  bool meets_master_ = false;
  bool master_is_undecided_ = false;
  bool told_gone_ = false;
};

}  // namespace mv::cluster
