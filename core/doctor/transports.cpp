#include "doctor/machine.hpp"
#include "runtime/transport_choice.hpp"
#include "transport/fabric/mpi.hpp"

namespace mv::doctor {

namespace {

/// Who carries out all-reduces. MPI is not opened: all processes of a job would have to.
void examine_collective(const runtime::Settings& settings, Findings& findings) {
  if (!runtime::wants_teams(settings)) {
    const char* const why = settings.collective == "auto" ? "auto: groups reduce by themselves, since MPI is not in use, as it is with transport=mpi"
                      : settings.collective == "nccl" ? "groups reduce by themselves, and arrays on devices by NCCL"
                                                      : "groups reduce by themselves";
    return findings.ok("all-reduce", settings.collective == "auto" ? why : fmt::format("collective={}: {}", settings.collective, why));
  }
  const auto plugin = transport::mpi_plugin();
  if (!plugin.ok())
    return findings.problem("all-reduce", fmt::format("collective={}: {}", settings.collective, plugin.status().text()),
                            "start the processes by the mpiexec of the MPI whose plug-in is installed, or set collective=own");
  findings.ok("all-reduce", settings.collective == "mpi" ? fmt::format("collective=mpi: groups that are opened hand over to MPI; {}", plugin.value().reason)
                                                         : "auto: where ranks share no memory, groups measure whether MPI's all-reduce is faster");
}

}  // namespace

Findings examine_transports(const runtime::Settings& settings) {
  Findings findings("network");
  examine_collective(settings, findings);
  const runtime::TransportChoice choice = runtime::choose_transports(settings);
  if (choice.mpi) {  // not opened: all processes of a job would have to
    const auto plugin = transport::mpi_plugin();
    if (plugin.ok())
      findings.ok("transport", fmt::format("{}; {}", choice.reason, plugin.value().reason));
    else
      findings.problem("transport", plugin.status().text(), "start the processes by the mpiexec of the MPI whose plug-in is installed");
    return findings;
  }
  if (!choice.ucx) {
    findings.ok("transport", choice.reason);
    return findings;
  }
  const auto fabric = runtime::open_ucx(settings);
  if (fabric.ok())
    findings.ok("transport", fmt::format("{} ({} finds {})", choice.reason, fabric.value()->about().version, fabric.value()->about().networks));
  else
    findings.problem("transport", fabric.status().text(),
                     fabric.status().code() == MV_ESYSTEM ? "compare UCX_TLS and UCX_NET_DEVICES with what `ucx_info -d` shows"
                                                          : "install libpolyverso-ucx, or leave transport (POLYVERSO_TRANSPORT) unset");
  return findings;
}

}  // namespace mv::doctor
