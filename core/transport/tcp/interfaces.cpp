#include "transport/tcp/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>

#include <cstring>
#include <functional>
#include <memory>

namespace mv::transport {

namespace {

/// The first address of the given family, on an interface that `suits`.
std::optional<std::string> find_address(int family, const std::function<bool(const ifaddrs&)>& suits) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || !suits(*one)) continue;
    Endpoint endpoint;
    endpoint.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&endpoint.storage, one->ifa_addr, endpoint.length);
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&endpoint.storage);
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)) continue;  // meaningless without the interface
    return host_port(endpoint).host;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> interface_address(const std::string& interface) {
  const auto is_it = [&](const ifaddrs& one) { return interface == one.ifa_name; };
  const auto v4 = find_address(AF_INET, is_it);
  return v4 ? v4 : find_address(AF_INET6, is_it);
}

std::optional<std::string> address_towards(const HostPort& remote) {
  const auto endpoints = resolve(remote, /*numeric_only=*/false, /*to_listen=*/false);
  if (!endpoints.ok()) return std::nullopt;
  for (const Endpoint& endpoint : endpoints.value()) {
    const Fd fd(socket(endpoint.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd && connect(fd.get(), endpoint.get(), endpoint.length) == 0) return host_port(local_endpoint(fd.get())).host;
  }
  return std::nullopt;
}

std::optional<std::string> first_outer_address(const std::string& wildcard) {
  return find_address(wildcard == "::" ? AF_INET6 : AF_INET, [](const ifaddrs& one) {
    return (one.ifa_flags & IFF_UP) != 0 && (one.ifa_flags & IFF_LOOPBACK) == 0;
  });
}

bool is_loopback_text(const std::string& host) {
  const auto endpoints = resolve({host, "0"}, /*numeric_only=*/true, /*to_listen=*/false);
  return endpoints.ok() && !endpoints.value().empty() && is_loopback(endpoints.value().front());
}

}  // namespace mv::transport
