#pragma once
// The place that a launcher assigned to this process, read from its environment variables: Open MPI, torchrun, Slurm,
// PMI, and DMLC's trackers. docs/launchers.md has the table. This code starts and schedules nothing.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mv::capi {

/// The value of a variable, or null if it is not set.
using Environment = std::function<const char*(const char* variable)>;

/// A name for the process that made the socket behind a descriptor and gave this process its other end, such as "4711.88123" (process and
/// start time); nothing if the descriptor is no such socket. All processes that it started have the same name for it.
using MakerOfSocket = std::function<std::optional<std::string>(int descriptor)>;
std::optional<std::string> maker_of_socket(int descriptor);

/// A value that a launcher set, and its source for messages: "OMPI_COMM_WORLD_RANK=1".
struct Found {
  std::string value, from;
};

/// Settings from a launcher's variables, named as in mv_init_options.
struct Assignment {
  std::string launcher;  ///< "Open MPI"
  std::optional<Found> rank, nodes, role, master, bind, advertise;
  std::optional<Found> rendezvous;  ///< if all processes are on one machine: the name under which rank 0 publishes its
                                    ///< address
  std::string missing;              ///< if there is neither a master nor a rendezvous: why, and what to set
  bool sets_roles = false;          ///< the launcher distinguishes servers and workers; else every process is both
};

struct Detected {
  std::optional<Assignment> place;
  std::vector<std::string> seen;   ///< all launchers whose variables are set; the one in force first
  std::vector<std::string> notes;  ///< possible mistakes
};

inline constexpr const char* kLauncherWords[] = {"auto", "none", "openmpi", "torchrun", "slurm", "pmi", "dmlc"};

/// The place of this process. `wish` is one of kLauncherWords; "auto" uses the launcher that is found.
/// @return MV_EDISAGREE  two launchers contradict each other, and neither plainly started the other; names both
///                       variables
///         MV_EINVAL     a launcher's variables are incomplete, or it is not supported; says what to set
base::Result<Detected> detect_launcher(std::string_view wish, const Environment& environment, const MakerOfSocket& maker = maker_of_socket);

/// MV_EINVAL if an unsupported launcher has numbered this process: each process would become a cluster of one.
base::Status refuse_unknown_launchers(const Environment& environment);

/// Expands "node[01-03,7],login" to its hosts, in order. MV_EINVAL if it is not such a list.
base::Result<std::vector<std::string>> expand_hosts(std::string_view list);

}  // namespace mv::capi
