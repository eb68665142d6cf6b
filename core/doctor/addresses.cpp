#include "runtime/addresses.hpp"

#include <chrono>

#include "doctor/machine.hpp"
#include "transport/tcp/socket.hpp"
#include "transport/tls/tls.hpp"

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

/// Whether the node listens or dials beyond loopback, as far as its settings tell.
bool reaches_out(const runtime::Settings& settings) {
  const auto beyond = [](const std::string& address) {
    const auto listening = runtime::listening_address(address);
    const auto split = transport::parse_address(listening.ok() ? listening.value() : address);
    if (!split.ok()) return false;
    const auto endpoints = transport::resolve(split.value(), /*numeric_only=*/false, /*to_listen=*/false);
    return endpoints.ok() && !endpoints.value().empty() && !transport::is_loopback(endpoints.value().front());
  };
  return beyond(settings.bind) || (!settings.master.empty() && beyond(settings.master));
}

void examine_certificate(const transport::TlsFiles& files, Findings& findings) {
  using std::chrono::system_clock;
  constexpr double kSoon = 14, kDay = 86'400;  // days; seconds
  constexpr const char* kRenew = "renew it; running processes read the new file by themselves";
  const auto context = transport::make_tls(files);
  const auto expires = context.ok() ? context.value()->expires() : base::Result<int64_t>(context.status());
  if (!expires.ok())
    return findings.problem("certificate", expires.status().text(), "set tls_cert, tls_key and tls_ca to files in PEM form that this user may read");
  const double left = static_cast<double>(expires.value() - system_clock::to_time_t(system_clock::now())) / kDay;
  if (left <= 0)
    findings.problem("certificate", fmt::format("{} has expired {:.0f} days ago", files.cert, -left), kRenew);
  else if (left < kSoon)
    findings.note("certificate", fmt::format("{} expires in {:.1f} days", files.cert, left), kRenew);
  else
    findings.ok("certificate", fmt::format("{} is valid for {:.0f} more days", files.cert, left));
}

void examine_tls(const runtime::Settings& settings, Findings& findings) {
  const transport::TlsSettings tls = settings.tls_settings();
  const bool out = reaches_out(settings);
  if (tls.mode == transport::TlsMode::kMutual) return examine_certificate(tls.files, findings);
  if (tls.mode == transport::TlsMode::kOff && out)
    return findings.note("encryption", "tls=off: what is sent beyond this machine can be read and changed on the network",
                         "unset tls (POLYVERSO_TLS) in all processes, unless the network itself is encrypted");
  if (tls.mode == transport::TlsMode::kOff || (tls.mode == transport::TlsMode::kAuto && !out))
    return findings.ok("encryption", tls.mode == transport::TlsMode::kOff ? "tls=off" : "tls=auto: not needed on loopback");
  const auto context = transport::make_tls({});
  if (context.ok())
    findings.ok("encryption", fmt::format("tls={}: TLS 1.3 with a key from the secret", settings.tls));
  else
    findings.problem("encryption", context.status().text(), fmt::format("install {}", transport::kTlsModuleFile));
}

}  // namespace

Findings examine_addresses(const runtime::Settings& settings) {
  Findings findings("network");
  if (settings.nodes == 1 || settings.transport == "inproc") {
    findings.ok("listening", "not needed: there are no other processes");
    return findings;
  }
  examine_secret(settings, findings);
  examine_tls(settings, findings);
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
