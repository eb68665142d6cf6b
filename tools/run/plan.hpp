#pragma once
// Which processes a run consists of, and what each is told.

#include <map>
#include <string>
#include <vector>

#include "run/options.hpp"
#include "run/registry.hpp"

namespace mv::tools {

struct Process {
  std::string label;  ///< in front of its lines: "w0", "s1"
  std::string name;   ///< in messages: "worker 0", "server 1"
  int rank = 0;
  int id = 0;  ///< among the workers or the servers
  bool server = false;
  bool added = false;  ///< by a change of the number of servers: its failure is not the run's
  Command command;
  std::vector<std::string> environment;  ///< all of it, "KEY=value"
};

/// A socket of 127.0.0.1 that listens already, so that no process can come before the master, and no port is guessed.
struct MasterSocket {
  int fd = -1;
  int port = 0;
};

/// Opens it on any free port, closed on exec. Throws std::system_error.
MasterSocket open_master_socket();

/// Where rank 0 finds that socket.
inline constexpr int kMasterSocketFd = 3;

/// How a run's processes find and trust each other.
struct Meeting {
  std::string master;
  std::string secret;          ///< empty: the processes prove that they have the same user
  std::string exits, resizes;  ///< see run/exits.hpp, run/resizes.hpp
  int nodes = 0, replicas = 0;  ///< the number of processes at the start; mv_init_options.replicas
  std::map<std::string, std::string> tls;  ///< what the run says of kTlsSettings; files with absolute paths
};
/// At this port of 127.0.0.1, with a fresh secret. A run with a keeper has the environment's secret, which further processes know, or none. Throws
/// std::system_error.
Meeting meeting_at(int port, std::string exits, std::string resizes, const RunOptions& options);

/// Workers have the first ranks, so that rank 0, the master, is worker 0; servers follow. `self` is this program's path.
std::vector<Process> plan(const RunOptions& options, const Meeting& meeting, const std::string& self);
/// Workers that take vacant places of another run.
std::vector<Process> plan_joining(const RunOptions& options, const Meeting& meeting);
/// A server that takes a vacant place of the cluster: the rank's.
Process plan_added_server(const RunOptions& options, const Meeting& meeting, const std::string& self, int rank);

}  // namespace mv::tools
