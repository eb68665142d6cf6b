#include "runtime/addresses.hpp"

#include "base/log.hpp"
#include "transport/tcp/interfaces.hpp"

namespace mv::runtime {

namespace {

/// Adds `port` and brackets if they are missing.
base::Result<transport::HostPort> split(const std::string& text, const std::string& port) {
  const bool bracketed = text.starts_with('[');
  const bool bare_v6 = !bracketed && text.find(':') != text.rfind(':');
  if (bare_v6) return transport::HostPort{text, port};
  const bool has_port = bracketed ? text.rfind(':') > text.find(']') && text.rfind(':') != std::string::npos
                                  : text.find(':') != std::string::npos;
  return transport::parse_address(has_port ? text : text + ":" + port);
}

bool is_spelled_loopback(const std::string& host) { return host == "localhost" || transport::is_loopback_text(host); }

}  // namespace

base::Result<std::string> listening_address(const std::string& wished) {
  auto split_up = split(wished, "0");
  if (!split_up.ok()) return split_up.status();
  transport::HostPort address = std::move(split_up).value();
  if (const auto of_interface = transport::interface_address(address.host)) {
    address.host = *of_interface;
    return transport::to_text(address);
  }
  if (is_spelled_loopback(address.host)) return transport::to_text(address);
  const auto endpoints = transport::resolve(address, /*numeric_only=*/false, /*to_listen=*/true);
  if (!endpoints.ok()) return base::error(MV_EINVAL, "can't listen on {}", endpoints.status().text());
  for (const transport::Endpoint& endpoint : endpoints.value())
    if (!transport::is_loopback(endpoint)) return transport::to_text(transport::host_port(endpoint));
  base::log_info(
      "{} is a loopback address on this machine ({}), but probably not on others: listening on all interfaces",
      address.host, transport::host_port(endpoints.value().front()).host);
  address.host = endpoints.value().front().storage.ss_family == AF_INET6 ? "::" : "0.0.0.0";
  return transport::to_text(address);
}

base::Result<std::string> advertised_address(const std::string& advertise, const std::string& bound,
                                             const std::string& master) {
  const auto listens = transport::parse_address(bound);
  if (!listens.ok()) return listens.status();
  const auto& [host, port] = listens.value();
  if (!advertise.empty()) {
    const auto said = split(advertise, port);
    return said.ok() ? base::Result<std::string>(transport::to_text(said.value())) : said.status();
  }
  if (!transport::is_wildcard(host)) return bound;
  const auto first_met = transport::parse_address(master);
  if (first_met.ok()) {
    const auto own = transport::address_towards(first_met.value());
    if (own && (!transport::is_loopback_text(*own) || is_spelled_loopback(first_met.value().host)))
      return transport::to_text({*own, port});
  }
  // The master is this machine, under a name that other machines resolve to something else.
  if (const auto outer = transport::first_outer_address(host)) return transport::to_text({*outer, port});
  return base::error(MV_EINVAL,
                     "found no address by which other machines can reach this one: set advertise "
                     "(POLYVERSO_ADVERTISE) to its name or address");
}

}  // namespace mv::runtime
