#pragma once
// The place that a launcher gave this process, read from the variables that it sets: Open MPI, torchrun, Slurm, PMI, and the
// trackers of DMLC's. docs/launchers.md has the table. Nothing is started or scheduled here.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace mv::capi {

/// The value of a variable, or null where it is not set.
using Environment = std::function<const char*(const char* variable)>;

/// One thing that a launcher said, and how messages name it: "OMPI_COMM_WORLD_RANK=1".
struct Found {
  std::string value, from;
};

/// Settings, by the names of mv_init_options, as a launcher's variables give them.
struct Assignment {
  std::string launcher;  ///< "Open MPI"
  std::optional<Found> rank, nodes, role, master, bind, advertise;
  std::optional<Found> rendezvous;  ///< where all are on one machine: the name under which rank 0 tells its address
  std::string missing;              ///< where there is neither: why, and what to set
  bool sets_roles = false;          ///< it knows servers and workers; else every process is both
};

struct Detected {
  std::optional<Assignment> place;
  std::vector<std::string> seen;   ///< all launchers whose variables are there, the one that counts first
  std::vector<std::string> notes;  ///< what looks like a mistake, but is none for certain
};

inline constexpr const char* kLauncherWords[] = {"auto", "none", "openmpi", "torchrun", "slurm", "pmi", "dmlc"};

/// Which place this process has. `wish` is one of kLauncherWords; "auto" takes what is there.
/// @return MV_EDISAGREE  two launchers that say different things, neither of them plainly inside the other; names both variables
///         MV_EINVAL     variables of a launcher that lack something, or are of one that can't be used; says what to set
base::Result<Detected> detect_launcher(std::string_view wish, const Environment& environment);

/// MV_EINVAL where a launcher that is not read has numbered this process: each by itself would be a cluster of one.
base::Status refuse_unknown_launchers(const Environment& environment);

/// The hosts that "node[01-03,7],login" stands for, in order. MV_EINVAL for what is no such list.
base::Result<std::vector<std::string>> expand_hosts(std::string_view list);

}  // namespace mv::capi
