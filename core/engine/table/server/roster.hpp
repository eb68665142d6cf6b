#pragma once
// The cluster as a server's tables see it: the workers, and which of the servers this is.

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "engine/cluster/view.hpp"
#include "engine/table/state.hpp"
#include "shard/spec.hpp"

namespace mv::table {

/// Workers have ids from 0. A process that replaces a lost worker takes its id. Loop thread only.
class Roster {
 public:
  /// To be called once, before any request. The view must outlive this object.
  /// @param has_copy  another process executes the same requests, and must get the same results
  void start(const cluster::View& view, base::Peer self, bool has_copy = false);
  bool has_started() const { return view_ != nullptr; }
  const cluster::View& view() const { return *view_; }

  /// The id of a worker, or of one that was replaced; -1 for other peers.
  int64_t worker_id(base::Peer peer) const {
    const auto found = worker_ids_.find(peer);
    return found != worker_ids_.end() ? static_cast<int64_t>(found->second) : -1;
  }
  size_t workers() const { return workers_.size(); }
  base::Peer worker(size_t id) const { return workers_[id]; }
  /// As of the arrival of the last worker.
  const WorkerNames& worker_names() const { return worker_names_; }

  /// The workers that have neither finished nor are lost.
  const std::set<base::Peer>& active() const { return active_; }
  bool is_active(base::Peer peer) const { return active_.contains(peer); }
  /// The worker has finished or is lost. False if this was known before.
  bool ended(base::Peer worker) { return active_.erase(worker) > 0; }
  /// The process replaces the lost worker with this id.
  void replaced(size_t id, base::Peer by);

  /// The node's mode, for tables that don't set their own.
  bool is_sync() const { return sync_; }
  /// The number of servers, and the index of this one.
  uint64_t servers() const { return servers_; }
  uint64_t index() const { return index_; }
  /// Whether other processes execute the requests for this table, and must get the same results: what one of them cannot
  /// do, all must refuse (Refusals), or it ends.
  bool has_copy(const shard::Spec& spec) const { return has_copy_ && (copies_all_ || spec.has_backups()); }
  void set_has_copy(bool on) { has_copy_ = on; }
  /// Whether the copy also has the values of tables without back-ups, as while the server drains.
  void set_copies_all(bool on) { copies_all_ = on; }

 private:
  const cluster::View* view_ = nullptr;
  std::vector<base::Peer> workers_;  ///< by id
  WorkerNames worker_names_;
  std::set<base::Peer> active_;
  std::unordered_map<base::Peer, size_t> worker_ids_;
  bool sync_ = false, has_copy_ = false, copies_all_ = true;
  uint64_t servers_ = 0, index_ = 0;
};

}  // namespace mv::table
