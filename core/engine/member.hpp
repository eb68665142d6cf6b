#pragma once
// The engines of one node, connected with each other. No I/O: the simulator drives hundreds of these on one thread.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/clock.hpp"
#include "base/link.hpp"
#include "base/pool.hpp"
#include "engine/channel/channels.hpp"
#include "engine/checkpoint/client.hpp"
#include "engine/checkpoint/coordinator.hpp"
#include "engine/checkpoint/participant.hpp"
#include "engine/cluster/cluster.hpp"
#include "engine/cluster/event.hpp"
#include "engine/collective/groups.hpp"
#include "engine/drain.hpp"
#include "engine/replica/parts.hpp"
#include "engine/status/inquirer.hpp"
#include "engine/table/client/client.hpp"
#include "engine/table/server/commands.hpp"
#include "engine/table/server/server.hpp"

namespace mv::engine {

/// Dispatches messages to the engines, and forwards losses and departures of members to them. Loop thread only.
class Member final : public base::LinkEvents, private rpc::Service, private cluster::Cluster::Owner {
 public:
  struct Events {
    std::function<void(const cluster::View&)> on_ready;
    std::function<void(const base::Status&)> on_failed;
    /// The membership changed; all_workers_gone() may have become true.
    std::function<void()> on_change;
    /// Called for each change of another member (joined, left, ...) after this node has joined; may be empty.
    std::function<void(const cluster::MembershipEvent&)> on_event = {};
    /// The master wants this server to drain, because fewer servers are wanted; may be empty.
    std::function<void()> on_drain = {};
  };

  /// @param shares_memory  other processes of this machine may map this node's dense shards
  /// @param storage  where checkpoints are kept, or null
  Member(const base::Clock& clock, base::Link& link, cluster::Self self, rpc::ClientOptions options, Events events,
         bool shares_memory = false, checkpoint::Storage* storage = nullptr);

  void start();
  table::Client& tables() { return table_client_; }
  const table::Server& shards() const { return table_server_; }
  const replica::Parts& parts() const { return parts_; }
  replica::Parts& parts() { return parts_; }
  const checkpoint::Participant& participant() const { return participant_; }
  const rpc::Client& requests() const { return rpc_client_; }
  const rpc::Server& service() const { return rpc_server_; }
  checkpoint::Client& checkpoints() { return checkpoint_client_; }
  table::Commands& commands() { return commands_; }
  collective::Groups& groups() { return groups_; }
  channel::Channels& channels() { return channels_; }
  cluster::Cluster& cluster() { return cluster_; }
  status::Inquirer& status() { return inquirer_; }
  const cluster::Cluster& cluster() const { return cluster_; }
  base::Peer self() const { return self_.peer; }
  /// Whether this peer is a member of the cluster in this node's view. Only requests of members are served.
  bool admits(base::Peer peer) const { return cluster_.is_member(peer); }
  /// Starts timing calls. Records them and the waits of the gates in `trace`, which must outlive this object.
  void take_times(base::TraceRing& trace);

  /// Enters the barrier, by default after a flush of this worker's changes.
  void barrier(base::OperationRef operation, bool flushed = true);
  /// Ends this worker: closes its channels, flushes, waits for its checkpoints, leaves its groups, then notifies the peers. Calls `left`
  /// with the first unreported error when all of them have answered.
  void leave(std::function<void(const base::Status&)> left);
  /// Notifies the peers at once, unless leave() has done so. The flush of leave() may wait for changes that a gate
  /// holds until a peer leaves, and that peer may wait for this worker.
  void leave_without_flush();
  /// Hands over the parts that this server serves; see Drain.
  Drain& drain() { return drain_; }
  /// Leaves as lost; see Cluster::abort().
  void abort(const std::string& why, std::function<void()> told) { cluster_.abort(why, std::move(told)); }

  void on_connected(base::Peer peer, const std::string& address) override;
  void on_observer(base::Peer peer) override;
  void on_dial_failed(const std::string& address, const base::Status& why) override;
  void on_lost(base::Peer peer, const base::Status& why) override;
  void on_part(base::Peer from) override { cluster_.heard(from); }
  void on_message(base::Peer from, const wire::Message& message, std::span<const std::byte> payload) override;
  base::SinkRef on_header(base::Peer from, const wire::Message& message, size_t bytes) override;
  void on_payload(base::Peer from, const wire::Message& message, base::Sink& sink) override;

  base::Nanos next_deadline() const;
  void tick();
  /// Sends pending acknowledgements. The loop calls it before it would block.
  void flush();

 private:
  struct Entering;
  void withdraw_barrier(const std::shared_ptr<Entering>& entering, mv_status code);

  void deliver(base::Peer from, const wire::Message& message, std::span<const std::byte> payload, const base::SinkRef& staged);
  void expire_barriers();
  void tell(cluster::Change change, const cluster::Member& member, std::string reason, uint32_t part = 0);
  void tell_of(cluster::MembershipEvent event);
  void tell_who_serves(const cluster::Member& part);
  void tell_all(std::function<void(const base::Status&)> left, const base::Status& flush_error);
  bool told_all_ = false;  ///< the peers were notified

  base::SinkRef place(const wire::Message& request, size_t bytes) override;
  void on_request(const rpc::Asked& asked, const wire::Message& request, std::span<const std::byte> payload,
                  const base::SinkRef& staged) override;
  void on_data(const rpc::Asked& asked, std::span<const std::byte> payload, const base::SinkRef& staged) override;
  void on_cancel(const rpc::Asked& asked) override;

  void on_view(const cluster::View& view) override;
  void on_ready() override;
  void on_failed(const base::Status& why) override;
  void on_member_finished(const cluster::Member& member) override;
  void on_member_lost(const cluster::Member& member, const base::Status& why) override;
  void on_worker_lost(const cluster::Member& worker, const base::Status& why) override;
  void on_deposed() override;
  void on_member_joined(const cluster::Member& member) override;
  void on_server_missed(const cluster::Member& server, const base::Status& why) override;
  void on_part_moved(const cluster::Member& part) override;
  void on_member_draining(const cluster::Member& member) override;
  void on_drained() override;
  void on_new_master() override;
  void on_cut_off(const base::Status& why) override;
  void on_news() override;
  void on_welcome(base::Peer peer) override;
  std::vector<cluster::Wait> known_waits() const override { return inquirer_.report().waits; }
  std::string own_wait() const override { return inquirer_.own_wait(); }

  const base::Clock& clock_;
  base::Link& link_;
  const cluster::Self self_;
  const Events events_;
  base::Pool pool_;
  rpc::Client rpc_client_;
  rpc::Server rpc_server_;
  cluster::Cluster cluster_;
  replica::Parts parts_;
  table::Client table_client_;
  table::Server table_server_;
  table::Commands commands_;
  checkpoint::Client checkpoint_client_;
  checkpoint::Participant participant_;
  checkpoint::Coordinator coordinator_;
  Drain drain_;
  status::Inquirer inquirer_;
  std::set<base::Peer> observers_;                   ///< peers that ask for the status and are not members
  std::vector<std::shared_ptr<Entering>> entering_;  ///< barriers in progress
  collective::Groups groups_;
  channel::Channels channels_;
  std::map<uint32_t, base::Peer> served_by_;  ///< by rank of the part's server, as last reported
};

}  // namespace mv::engine
