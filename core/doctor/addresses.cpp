#include "runtime/addresses.hpp"

#include "doctor/machine.hpp"
#include "transport/tcp/socket.hpp"

namespace mv::doctor {

namespace {

constexpr size_t kShortSecret = 16;

/// Listens on an address for a moment. Returns the bound address.
base::Result<std::string> try_to_listen(const std::string& wished) {
  const auto address = runtime::listening_address(wished);
  if (!address.ok()) return address.status();
  const auto split = transport::parse_address(address.value());
  if (!split.ok()) return split.status();
  const auto endpoints = transport::resolve(split.value(), /*numeric_only=*/false, /*to_listen=*/true);
  if (!endpoints.ok()) return endpoints.status();
  if (endpoints.value().empty()) return base::error(MV_EINVAL, "{} is not an address to listen on", wished);
  const auto listener = transport::listen_on(endpoints.value().front());
  if (!listener.ok()) return listener.status();
  return transport::to_text(transport::host_port(transport::local_endpoint(listener.value().get())));
}

void examine_secret(const runtime::Settings& settings, Findings& findings) {
  if (settings.secret.empty()) {
    findings.ok("secret", settings.rendezvous.empty() ? "none: this cluster is limited to loopback"
                                                      : "none set: rank 0 generates one for this job");
  } else if (settings.secret.size() < kShortSecret) {
    findings.note(
        "secret",
        fmt::format("only {} characters: anyone who can connect to this cluster can guess hundreds of secrets per second", settings.secret.size()),
        "generate one with `head -c 32 /dev/urandom | base64`, and set it for all processes");
  } else {
    findings.ok("secret", fmt::format("{} characters", settings.secret.size()));
  }
}

}  // namespace

Findings examine_addresses(const runtime::Settings& settings) {
  Findings findings("network");
  if (settings.nodes == 1 || settings.transport == "inproc") {
    findings.ok("listening", "not needed: there are no other processes");
    return findings;
  }
  examine_secret(settings, findings);
  const bool is_master = settings.rank == 0;
  if (is_master && settings.listen_fd >= 0) {
    findings.ok("listening", fmt::format("`polyverso run` has bound {} already", settings.master));
    return findings;
  }
  const std::string& wished = is_master && !settings.master.empty() ? settings.master : settings.bind;
  const auto bound = try_to_listen(wished);
  if (!bound.ok()) {
    const bool taken = bound.status().code() == MV_EADDRINUSE;
    findings.problem("listening", bound.status().text(),
                     taken ? fmt::format("find the other program (ss -ltnp) and end it, or choose another port in {}",
                                         is_master ? "POLYVERSO_MASTER for all processes" : "POLYVERSO_BIND")
                           : fmt::format("set {} to a name, address or interface of this machine",
                                         is_master ? "POLYVERSO_MASTER" : "bind (POLYVERSO_BIND)"));
    return findings;
  }
  const auto told = runtime::advertised_address(settings.advertise, bound.value(),
                                             settings.master.empty() ? bound.value() : settings.master);
  if (!told.ok())
    findings.problem("listening", told.status().text(), "set advertise (POLYVERSO_ADVERTISE)");
  else
    findings.ok("listening",
                fmt::format("on {} for {}; peers are told {}", bound.value(), wished, told.value()));
  return findings;
}

}  // namespace mv::doctor
