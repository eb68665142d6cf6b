#include "doctor/machine.hpp"
#include "runtime/transports.hpp"

namespace mv::doctor {

Findings examine_transports(const runtime::Settings& settings) {
  Findings findings("network");
  const runtime::TransportChoice choice = runtime::choose_transports(settings);
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
