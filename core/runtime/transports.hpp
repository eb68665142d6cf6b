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
  std::string reason;  ///< "auto: ..."
};

/// What decides besides the settings. `plugin` is asked only where it matters, because it loads UCX.
struct Surroundings {
  bool has_rdma = false;
  std::function<base::Status()> plugin;
  static Surroundings here();
};
TransportChoice choose_transports(const Settings& settings, const Surroundings& around = Surroundings::here());

/// Loads UCX and opens it for a node with these settings. With tls=auto only loopback is used, because UCX does not
/// encrypt. MV_ENOSYS, MV_EVERSION, MV_ESYSTEM.
base::Result<std::unique_ptr<transport::Fabric>> open_ucx(const Settings& settings);

}  // namespace mv::runtime
