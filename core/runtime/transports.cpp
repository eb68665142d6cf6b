#include "runtime/transports.hpp"

namespace mv::runtime {

namespace {

constexpr const char* kUsual = "auto: shared memory within a machine, TCP beyond; ";

/// transport=auto. UCX is worth it where the network devices move the data: over TCP it is not faster than TCP.
TransportChoice choose_automatically(const Settings& settings, const Surroundings& around) {
  if (!around.has_rdma) return {true, false, std::string(kUsual) + "UCX would not be faster, since this machine has no RDMA device"};
  if (settings.tls != "off")
    return {true, false, fmt::format("{}not UCX by this machine's RDMA device, because UCX does not encrypt, and tls={}: tls=off allows it", kUsual, settings.tls)};
  if (const base::Status plugin = around.plugin(); !plugin.ok())
    return {true, false, fmt::format("{}not UCX by this machine's RDMA device: {}", kUsual, plugin.text())};
  return {true, true, "auto: shared memory within a machine; UCX beyond, since this machine has an RDMA device"};
}

}  // namespace

Surroundings Surroundings::here() {
  return {transport::has_rdma_device(), [] { return transport::ucx_plugin().status(); }};
}

TransportChoice choose_transports(const Settings& settings, const Surroundings& around) {
  if (settings.transport == "inproc") return {false, false, "transport=inproc: nodes of this process"};
  if (settings.transport == "tcp") return {false, false, "transport=tcp: also within a machine"};
  if (settings.transport == "shm") return {true, false, "transport=shm: shared memory within a machine, TCP beyond, never UCX"};
  if (settings.transport == "ucx") return {false, true, "transport=ucx: also within a machine"};
  return choose_automatically(settings, around);
}

base::Result<std::unique_ptr<transport::Fabric>> open_ucx(const Settings& settings) {
  const auto plugin = transport::ucx_plugin();
  if (!plugin.ok()) return plugin.status();
  return transport::Fabric::open(plugin.value(), settings.tls_settings().mode != transport::TlsMode::kOff);
}

}  // namespace mv::runtime
