#pragma once
// The settings of this node's membership.

#include <polyverso/polyverso.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "base/link.hpp"

namespace mv::cluster {

/// What this node brings to the cluster.
struct Self {
  base::Peer peer = base::kNobody;
  int64_t rank = -1;  ///< the requested rank, -1 for any; the master has 0
  int32_t role = MV_ROLE_ALL;
  uint32_t nodes = 1;
  uint32_t replicas = 0;  ///< the number of back-ups of each server's tables
  uint32_t max_servers = 0;  ///< on the master: the number of servers to which the cluster can grow; 0: those that it begins with
  uint32_t max_workers = 0;  ///< on the master: as max_servers, of workers
  bool sync = false;
  bool sync_said = true;  ///< `sync` was set explicitly; otherwise the other processes decide it
  bool is_master = true;
  std::string master;   ///< the address of the master, if this node is not the master
  bool asks_keeper = false;  ///< a process that joins hears from Cluster::ask_at() of a new master
  std::string address;  ///< where this node listens
  std::string host;
  uint32_t pid = 0;
  base::Nanos init_timeout = std::chrono::seconds(60);
  base::Nanos heartbeat_timeout = std::chrono::seconds(5);
  base::Nanos stuck_after = std::chrono::seconds(10);  ///< requests that wait this long are logged
};

}  // namespace mv::cluster
