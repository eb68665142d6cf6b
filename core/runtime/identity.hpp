#pragma once
// Identity: a node's ranks and ids.

#include <cstdint>
#include <string>

namespace mv::runtime {

/// Fixed once the node has joined its cluster.
struct Identity {
  int64_t rank = 0, size = 1;
  int64_t worker_id = 0, num_workers = 1;  ///< worker_id -1: only a server
  int64_t server_id = 0, num_servers = 1;  ///< server_id -1: only a worker
  int64_t num_worker_places = 1;           ///< num_workers, and the vacant places of others
  int64_t num_parts = 1;                   ///< into which tables are cut: the servers, and the vacant places of others
  bool sync = false;
  bool is_late = false;  ///< it has joined a cluster that was complete already
  std::string address;  ///< the address at which others reach it; empty if none should
};

}  // namespace mv::runtime
