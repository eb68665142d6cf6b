#pragma once
// Which plug-in for MPI a process needs: Open MPI's or MPICH's, whose libraries are not compatible. A process may have only
// one of them, and only the one whose launcher has started it knows the other processes of the job.

#include <functional>
#include <optional>
#include <string>

#include "transport/fabric/fabric.hpp"

namespace mv::transport {

inline constexpr const char* kMpiPluginVariable = "POLYVERSO_MPI_PLUGIN";

enum class MpiFamily { kOpenMpi, kMpich };
const char* name_of(MpiFamily family);
/// "libpolyverso-mpi-openmpi.so"
const char* plugin_file(MpiFamily family);

/// What is known of MPI in this process before the library uses it.
struct MpiSurroundings {
  std::optional<MpiFamily> initialized;  ///< the program has initialized this one
  std::optional<MpiFamily> loaded;       ///< the process has this one's library
  std::function<const char*(const char* variable)> variable;
  static MpiSurroundings here();
};

struct MpiChoice {
  std::optional<MpiFamily> family;  ///< empty: either
  std::string reason;               ///< "Open MPI's launcher started this process (OMPI_COMM_WORLD_SIZE)"
};
/// MV_EDISAGREE if the program has initialized another MPI than the launcher's.
base::Result<MpiChoice> choose_mpi(const MpiSurroundings& around = MpiSurroundings::here());

/// MPI's plug-in, loaded by the first call, and why this one. Any thread. MV_ENOSYS, MV_EDISAGREE.
struct MpiPlugin {
  FabricPlugin plugin = nullptr;
  std::string reason;
};
base::Result<MpiPlugin> mpi_plugin();

}  // namespace mv::transport
