#pragma once
// Settings: how a node starts, resolved: capi/ merges options, text, arguments and environment into this.

#include <polyverso/polyverso.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "base/clock.hpp"
#include "transport/tls/tls.hpp"

namespace mv::runtime {

using namespace std::chrono_literals;

/// A role of rank 0 only: it admits the members, holds no tables and does no work, like a DMLC scheduler.
inline constexpr int32_t kRoleScheduler = 4;

struct Settings {
  bool sync = false;
  bool sync_said = false;          ///< set explicitly; otherwise the others' choice counts
  int32_t role = MV_ROLE_ALL;      ///< mv_role, never MV_ROLE_UNSET, or kRoleScheduler
  int64_t rank = -1;               ///< -1: by order of arrival
  bool joins_only = false;         ///< without a rank: never becomes rank 0, even if the master's address is free
  int64_t nodes = 1;
  bool nodes_said = false;         ///< `nodes` was set; otherwise, with transport=mpi, the job's size counts
  int64_t replicas = 0;            ///< the number of other servers that keep a copy of each server's tables
  int64_t max_servers = 0;         ///< the number of servers to which the cluster can grow; 0: those that it begins with. Rank 0's value counts
  int64_t max_workers = 0;         ///< as max_servers, of workers
  std::string master;              ///< "host:port" or, with transport=inproc, a name; empty for one node
  std::string keeper;              ///< the store of the cluster's name, see runtime/keeper/address.hpp
  std::string keeper_auth;         ///< "user:password" there; empty: none
  std::string rendezvous;          ///< instead of `master`: the name under which processes of this machine find rank 0's address
  std::string bind = "127.0.0.1";  ///< "host" or "host:port"; an interface's name is its first address
  std::string advertise;           ///< "host" or "host:port" to advertise; empty: the listening address
  std::string secret;
  std::string transport = "auto";  ///< auto, shm, tcp, ucx, mpi, inproc: see runtime/transport_choice.hpp
  std::string tls = "auto";        ///< auto, off, psk, mutual: see transport::TlsMode
  std::string tls_cert, tls_key, tls_ca;  ///< files, for tls=mutual
  std::string faults;              ///< text for transport/faulty; empty: none
  int listen_fd = -1;              ///< rank 0 under `polyverso run`: the master's socket, already listening (POLYVERSO_LISTEN_FD)
  std::string exits;               ///< under `polyverso run`: its file about ended processes, see runtime/exits.hpp; empty: none
  std::string resizes;             ///< under `polyverso run`: its pipe for the wanted number of servers, see runtime/resize.cpp; empty: none
  base::Nanos timeout = 60s;
  base::Nanos gate_timeout = 600s;
  base::Nanos init_timeout = 60s;
  base::Nanos heartbeat_timeout = 5s;
  base::Nanos stuck_after = 10s;   ///< longer waits are reported in the log
  uint64_t inflight_bytes = 256ull << 20;
  int64_t spin_us = 50;            ///< longest spin of a wait before it sleeps
  std::string checkpoint;          ///< directory for periodic checkpoints; empty: none
  base::Nanos checkpoint_every = 60s;
  uint64_t checkpoint_keep = 3;
  std::string metrics;             ///< "port" or "host:port" of an HTTP server for metrics; empty: none
  std::string collective_costs;    ///< by which groups choose algorithms, in the form of engine/collective/cost_text.hpp; empty: the defaults
  std::string tuning = "auto";     ///< how groups in shared memory choose their algorithms: api/group/kept_tuning.hpp
  std::string collective = "auto"; ///< auto, own, mpi, nccl: the implementation of all-reduces, see api/group/handover.hpp
  int64_t trace_events = -1;       ///< number of last events kept for mv_trace_text(); -1: see events_kept()

  /// By default only if they can be read over HTTP: events cost about 0.1 µs a message.
  size_t events_kept() const { return trace_events >= 0 ? static_cast<size_t>(trace_events) : metrics.empty() ? 0 : 16'384; }

  /// Whether others can find the cluster by its name in `keeper`. A run of one process (`polyverso run -n 1`) listens, too.
  bool is_named() const { return !keeper.empty() && (nodes > 1 || listen_fd >= 0) && transport != "inproc" && transport != "mpi"; }
  /// Whether the processes themselves find each other by `keeper`. With a master they meet there, and rank 0 publishes its address under the name.
  bool meets_by_keeper() const { return is_named() && nodes > 1 && master.empty(); }

  transport::TlsSettings tls_settings() const {
    return {transport::tls_mode(tls).value_or(transport::TlsMode::kAuto), {tls_cert, tls_key, tls_ca}};
  }

  bool operator==(const Settings&) const = default;
};

}  // namespace mv::runtime
