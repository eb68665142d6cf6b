#include "runtime/transport_choice.hpp"

#include "transport/fabric/mpi.hpp"

namespace mv::runtime {

namespace {

constexpr const char* kUsual = "auto: shared memory within a machine, TCP beyond; ";

/// transport=auto. UCX is worth it where the network devices move the data: over TCP it is not faster than TCP.
TransportChoice choose_automatically(const Settings& settings, const Surroundings& around) {
  if (!around.has_rdma) return {true, false, false, std::string(kUsual) + "UCX would not be faster, since this machine has no RDMA device"};
  if (settings.tls != "off")
    return {true, false, false, fmt::format("{}not UCX by this machine's RDMA device, because UCX does not encrypt, and tls={}: tls=off allows it", kUsual, settings.tls)};
  if (const base::Status plugin = around.plugin(); !plugin.ok())
    return {true, false, false, fmt::format("{}not UCX by this machine's RDMA device: {}", kUsual, plugin.text())};
  return {true, true, false, "auto: shared memory within a machine; UCX beyond, since this machine has an RDMA device"};
}

/// MPI does not encrypt.
base::Status check_encryption(const char* what, const Settings& settings, const mv_fabric_about& about) {
  if (about.machines <= 1 || settings.tls_settings().mode == transport::TlsMode::kOff) return {};
  return base::error(MV_EINVAL,
                     "{} does not encrypt, and the {} processes of the MPI job are on {} machines: set tls=off (POLYVERSO_TLS) if the network "
                     "between them is closed or encrypted already",
                     what, about.size, about.machines);
}

}  // namespace

Surroundings Surroundings::here() {
  return {transport::has_rdma_device(), [] { return transport::ucx_plugin().status(); }};
}

TransportChoice choose_transports(const Settings& settings, const Surroundings& around) {
  if (settings.transport == "inproc") return {false, false, false, "transport=inproc: nodes of this process"};
  if (settings.transport == "tcp") return {false, false, false, "transport=tcp: also within a machine"};
  if (settings.transport == "shm") return {true, false, false, "transport=shm: shared memory within a machine, TCP beyond, never UCX"};
  if (settings.transport == "ucx") return {false, true, false, "transport=ucx: also within a machine"};
  if (settings.transport == "mpi") return {false, false, true, "transport=mpi: also within a machine, without TCP"};
  return choose_automatically(settings, around);
}

base::Result<std::unique_ptr<transport::Fabric>> open_ucx(const Settings& settings) {
  const auto plugin = transport::ucx_plugin();
  if (!plugin.ok()) return plugin.status();
  const auto gets = transport::wants_ucx_gets();
  if (!gets.ok()) return gets.status();
  return transport::Fabric::open(plugin.value(), settings.tls_settings().mode != transport::TlsMode::kOff, base::kNever, gets.value());
}

bool wants_teams(const Settings& settings) {
  const bool has_others = settings.nodes > 1 && settings.transport != "inproc";
  return has_others && (settings.collective == "mpi" || (settings.collective == "auto" && settings.transport == "mpi"));
}

base::Result<std::unique_ptr<transport::Fabric>> open_mpi_for_teams(const Settings& settings) {
  const auto plugin = transport::mpi_plugin();
  if (!plugin.ok()) return base::error(plugin.status().code(), "collective={}: {}", settings.collective, plugin.status().text());
  auto opened = transport::Fabric::open(plugin.value().plugin, /*loopback_only=*/false, settings.init_timeout);
  if (!opened.ok()) return base::error(opened.status().code(), "collective={}: {}", settings.collective, opened.status().text());
  const mv_fabric_about& about = opened.value()->about();
  if (about.size == 1)
    return base::error(MV_EINVAL,
                       "collective=mpi, but the MPI job has 1 process ({}), and the cluster {}: start all processes by one mpiexec -n {} of that MPI, or leave "
                       "collective (POLYVERSO_COLLECTIVE) unset",
                       about.version, settings.nodes, settings.nodes);
  if (const base::Status open = check_encryption("collective=mpi", settings, about); !open.ok()) return open;
  return opened;
}

base::Result<MpiJob> open_mpi(const Settings& settings) {
  const auto plugin = transport::mpi_plugin();
  if (!plugin.ok()) return plugin.status();
  auto opened = transport::Fabric::open(plugin.value().plugin, /*loopback_only=*/false, settings.init_timeout);
  if (!opened.ok()) return opened.status();
  const mv_fabric_about& about = opened.value()->about();
  if (settings.nodes_said && settings.nodes != about.size)
    return base::error(MV_EINVAL,
                       "nodes={}, but the MPI job has {} ({}): start all processes by one mpiexec -n {} of that MPI, or leave nodes (POLYVERSO_NODES) unset", settings.nodes,
                       about.size == 1 ? "1 process" : fmt::format("{} processes", about.size), about.version, settings.nodes);
  if (settings.rank >= 0 && settings.rank != about.rank)
    return base::error(MV_EINVAL, "rank={}, but this process has rank {} in its MPI job: leave rank (POLYVERSO_RANK) unset", settings.rank, about.rank);
  if (const base::Status open = check_encryption("transport=mpi", settings, about); !open.ok()) return open;
  if (about.size == 1 && settings.role != MV_ROLE_ALL)
    return base::error(MV_EINVAL, "the MPI job has 1 process, which must be worker and server, role=all: start all processes by one mpiexec of {}", about.version);
  if (settings.role == kRoleScheduler && about.rank != 0) return base::error(MV_EINVAL, "role=scheduler is only for the master, rank 0 of the MPI job");
  std::string reason = fmt::format("{}; {}, {}; {}", choose_transports(settings).reason, about.version, about.networks, plugin.value().reason);
  return MpiJob{std::move(opened).value(), std::move(reason)};
}

}  // namespace mv::runtime
