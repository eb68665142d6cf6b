#pragma once
// The setting `transport`: which transports a node has besides inproc and TCP, and why.

#include <functional>
#include <memory>
#include <string>

#include "base/result.hpp"
#include "runtime/settings.hpp"
#include "transport/fabric/fabric.hpp"

namespace mv::runtime {

struct TransportChoice {
  bool shm = false;    ///< between processes of one machine
  bool ucx = false;    ///< between all others
  bool mpi = false;    ///< between all processes, without TCP
  std::string reason;  ///< "auto: ..."
};

/// The facts that decide besides the settings. `plugin` is called only where its result matters, because it loads UCX.
struct Surroundings {
  bool has_rdma = false;
  std::function<base::Status()> plugin;
  static Surroundings here();
};
TransportChoice choose_transports(const Settings& settings, const Surroundings& around = Surroundings::here());

/// Loads UCX and opens it for a node with these settings. With tls=auto only loopback is used, because UCX does not
/// encrypt. MV_ENOSYS, MV_EVERSION, MV_ESYSTEM.
base::Result<std::unique_ptr<transport::Fabric>> open_ucx(const Settings& settings);

/// This process in an MPI job.
struct MpiJob {
  std::unique_ptr<transport::Fabric> fabric;
  std::string reason;  ///< "transport=mpi: Open MPI 4.1.4, ..."
};
/// Whether the node hands all-reduces over to MPI, or may do so. With collective=auto only where MPI is in use anyway: to
/// open it takes all processes of the job.
bool wants_teams(const Settings& settings);
/// Loads MPI and opens it for the all-reduces of a node, together with all other processes of the job. As open_mpi().
base::Result<std::unique_ptr<transport::Fabric>> open_mpi_for_teams(const Settings& settings);

/// Loads MPI and opens it, together with all other processes of the job. MV_ENOSYS, MV_EDISAGREE, MV_ESTATE, MV_ETIMEOUT;
/// MV_EINVAL if the job is not the cluster of the settings, or needs encryption.
base::Result<MpiJob> open_mpi(const Settings& settings);

}  // namespace mv::runtime
