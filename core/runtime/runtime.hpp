#pragma once
// Runtime: wires one node's engines, transports and loop together, from joining the cluster to leaving it.

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/trace.hpp"
#include "engine/member.hpp"
#include "runtime/disk_storage.hpp"
#include "runtime/identity.hpp"
#include "runtime/keeper/etcd_keeper.hpp"
#include "runtime/keeper/rendezvous.hpp"
#include "runtime/local_rendezvous.hpp"
#include "runtime/metrics.hpp"
#include "runtime/router.hpp"
#include "runtime/settings.hpp"
#include "transport/fabric/teams.hpp"
#include "transport/http/http.hpp"
#include "transport/loop/loop.hpp"

namespace mv::runtime {

/// Any thread, unless stated otherwise. Knows nothing of callers' calls, which belong to api/.
class Runtime final : private transport::Flusher {
 public:
  /// Events for the owner.
  struct Events {
    std::function<void()> joined;                           ///< on the loop: the cluster is complete
    std::function<void(const cluster::MembershipEvent&)> membership;  ///< on the loop: may be empty
    std::function<void(base::Peer peer)> lost_shared_memory;  ///< on the loop: the peer's memory must not be used any more
    std::function<void(const base::Status& why)> broken;    ///< any thread, once: the node has broken down. Allocates nothing
  };

  Runtime(const Settings& settings, Events events);
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  ~Runtime();

  /// As Node::join(), shutdown(), abort() and abandon_after_fork().
  base::Status join();
  base::Status shutdown();
  void abort(const std::string& why);
  base::Status why_never_drain();
  base::Status drain(base::Nanos timeout);
  base::Status resize(uint32_t servers, base::Nanos timeout);
  void abandon_after_fork() noexcept;
  /// Ends the loop and what runs on it. The owner calls it before it destroys what the engines'
  /// operations point to. Idempotent.
  void end();

  const Settings& settings() const { return settings_; }
  const Identity& identity() const { return identity_; }
  bool workers_gone() const { return workers_gone_; }
  bool is_drained() const { return drained_; }
  transport::Loop& loop() { return loop_; }
  const transport::Loop& loop() const { return loop_; }
  engine::Member& member() { return *member_; }
  /// The shared-memory transport; null if there is none.
  transport::ShmTransport* shared_memory() { return router_->shm(); }
  /// The transport by UCX, where clients may read their servers' memory; else null.
  transport::FabricTransport* fabric() { return router_->fabric(); }
  /// Whether other processes may read this process's tables in place.
  bool shares_tables() { return shared_memory() != nullptr || fabric() != nullptr; }
  /// For all-reduces by MPI; null: they are never handed over. Loop thread only.
  transport::Teams* teams() { return teams_.get(); }
  /// The transport to a peer. Loop thread only.
  std::optional<Router::PathInfo> path_to(base::Peer peer) const { return router_->path_to(peer); }

  /// Runs `work` on the loop and waits for it.
  void on_loop(const std::function<void()>& work);
  /// on_loop() for work that changes nothing. Throws std::bad_alloc if `read` does.
  void read_on_loop(const std::function<void()>& read);
  /// Runs the second half of a change. An exception leaves the change half made, and so breaks the node down.
  void no_way_back(const std::function<void()>& work);
  /// The status of a wait that was cut short: the node has broken down, or is shutting down.
  base::Status ended() const;
  /// Registers `tell`, which runs if the node breaks down while `alive` exists: on any thread,
  /// and without an allocation.
  void when_broken(std::weak_ptr<const void> alive, std::function<void(const base::Status& why)> tell);

  /// Where callers' threads note their waits.
  base::CallerTrace& callers_trace() { return callers_trace_; }
  /// The node's metrics in Prometheus's format, and its last events in Chrome's.
  base::Result<std::string> metrics_text();
  base::Result<std::string> trace_text();

 private:
  base::Status enter_job();
  base::Status set_up();
  base::Status make_transports(cluster::Self& self);
  base::Status make_teams();
  base::Status meet();
  base::Status meet_by_keeper();
  void follow_keeper();
  void take_name();
  void tell_launcher();
  base::Status listen(cluster::Self& self);
  base::Status listen_in_job(cluster::Self& self);
  base::Status listen_inproc(cluster::Self& self);
  base::Result<std::string> listen_at(const std::string& wished);
  base::Result<std::string> adopt_sockets();
  std::string towards(const std::string& master) const;
  base::Status wait_until_ready();
  base::Status never_joined() const;
  bool is_joining();
  void take_identity(const cluster::View& view);
  void share_memory();
  void rearm();
  void flush() override;
  void prepare_poll() override;
  void stop_transports();
  void finish_worker();
  void note_left(const base::Status& status);
  void tell_breakdown(const base::Status& why) noexcept;

  base::Status serve_metrics();
  void learn_ranks();
  void take_peers(Metrics& metrics);
  Metrics take_metrics();
  transport::HttpAnswer answer(const std::string& path);
  status::Path path_to_peer(base::Peer peer) const;

  Settings settings_;
  const Events events_;
  Identity identity_;
  transport::Loop loop_;
  base::TraceRing trace_;
  base::CallerTrace callers_trace_{settings_.events_kept()};
  const bool watched_ = trace_.on() || !settings_.metrics.empty();  ///< times are taken
  std::optional<MpiJob> job_;  // from enter_job() until the router takes it
  std::unique_ptr<Router> router_;
  class HostMemory;
  std::unique_ptr<HostMemory> host_memory_;
  std::unique_ptr<transport::Teams> teams_;
  std::unique_ptr<cluster::Keeper> view_keeper_;  ///< etcd; null: the members decide about views themselves
  bool has_name_ = false;                         ///< take_name() has taken the cluster's name
  bool meets_at_master_ = false;                  ///< although the cluster has a name
  std::string published_;                         ///< of rank 0: the address under the cluster's name
  transport::Fd published_fd_;                    ///< its socket there, until it is adopted, if the master's address is another one
  std::unique_ptr<keeper::Rendezvous> by_keeper_;  ///< at rank 0 it keeps the cluster's name until the node ends
  std::unique_ptr<Publication> publication_;  ///< rank 0's address, until all processes have joined
  DiskStorage storage_{loop_};
  std::unique_ptr<engine::Member> member_;
  std::atomic<bool> ready_{false}, failed_{false}, workers_gone_{false};
  base::Status failure_;
  base::Nanos armed_ = base::kNever;
  std::mutex when_broken_mutex_;
  std::vector<std::pair<std::weak_ptr<const void>, std::function<void(const base::Status&)>>> when_broken_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  bool has_met_ = false;
  std::array<uint64_t, cluster::kChanges> changes_{};  ///< of the membership, by cluster::Change. Loop only
  std::unique_ptr<transport::HttpServer> http_;
  std::unordered_map<base::Peer, uint32_t> ranks_;  ///< also of processes that were replaced
  bool loop_runs_ = false;
  bool leaving_ = false;
  std::atomic<bool> left_{false};
  std::atomic<bool> drained_{false};  ///< others serve the parts of this node
  base::Status left_with_;
  std::vector<std::function<void()>> when_left_;  ///< called when left_ is set. Loop only
  std::string told_servers_;   ///< by tell_launcher()
  uint64_t told_resizes_ = 0;  ///< likewise: Cluster::resizes()
};

}  // namespace mv::runtime
