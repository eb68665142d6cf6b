#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "doctor/machine.hpp"
#include "transport/tcp/interfaces.hpp"
#include "transport/tcp/socket.hpp"

namespace mv::doctor {

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kPatienceMs = 1000;
/// For each peer: TCP, a unix socket, two bells and two segments. For the process: its own files.
constexpr uint64_t kFdsForPeer = 8, kFdsForProcess = 64;

bool wait_for(int fd, short events) {
  pollfd waits{fd, events, 0};
  return poll(&waits, 1, kPatienceMs) == 1 && (waits.revents & (POLLERR | POLLNVAL)) == 0;
}

/// Round-trip time of one byte over a connection of this process to itself.
base::Result<base::Nanos> try_loopback(const char* host) {
  const auto endpoints = transport::resolve({host, "0"}, /*numeric_only=*/true, /*to_listen=*/true);
  if (!endpoints.ok()) return endpoints.status();
  if (endpoints.value().empty()) return base::error(MV_ESYSTEM, "{} can't be resolved", host);
  const auto listener = transport::listen_on(endpoints.value().front());
  if (!listener.ok()) return listener.status();
  int failure = 0;
  const transport::Fd here = transport::start_connect(transport::local_endpoint(listener.value().get()), &failure);
  if (!here) return base::error(MV_ESYSTEM, "can't connect to {}: {}", host, std::strerror(failure));
  if (!wait_for(here.get(), POLLOUT))
    return base::error(MV_ESYSTEM, "can't connect to {}: {}", host, std::strerror(transport::connect_result(here.get())));
  const transport::Fd there(accept4(listener.value().get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!there) return base::error(MV_ESYSTEM, "can't accept a connection to {}: {}", host, std::strerror(errno));
  transport::prepare_stream(there.get(), transport::remote_endpoint(there.get()));
  const auto begun = Clock::now();
  char byte = 42;
  const auto pass = [&](int from, int to) {
    return send(from, &byte, 1, MSG_NOSIGNAL) == 1 && wait_for(to, POLLIN) && recv(to, &byte, 1, 0) == 1;
  };
  if (!pass(here.get(), there.get()) || !pass(there.get(), here.get()))
    return base::error(MV_ESYSTEM, "a byte sent to {} does not arrive", host);
  return Clock::now() - begun;
}

void examine_loopback(Findings& findings) {
  const auto v4 = try_loopback("127.0.0.1"), v6 = try_loopback("::1");
  if (v4.ok())
    findings.ok("loopback", fmt::format("TCP to 127.0.0.1 works, round trip {}", micros(v4.value())));
  else
    findings.problem("loopback", v4.status().text(), "bring the loopback interface up: ip link set lo up");
  if (v6.ok())
    findings.ok("loopback, IPv6", fmt::format("TCP to [::1] works, round trip {}", micros(v6.value())));
  else
    findings.note(
        "loopback, IPv6", v6.status().text(),
        "nothing to do if all addresses are IPv4; else sysctl net.ipv6.conf.all.disable_ipv6=0, or enable IPv6 in the container");
}

void examine_name(Findings& findings) {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  const auto endpoints = transport::resolve({name, "0"}, /*numeric_only=*/false, /*to_listen=*/false);
  if (!endpoints.ok())
    return findings.note("host name", fmt::format("{} can't be resolved here ({})", name, endpoints.status().text()),
                         "use addresses, not this name, in master, bind and advertise; or add it to /etc/hosts");
  std::string addresses;
  bool outer = false;
  for (const transport::Endpoint& endpoint : endpoints.value()) {
    addresses += (addresses.empty() ? "" : ", ") + transport::host_port(endpoint).host;
    outer = outer || !transport::is_loopback(endpoint);
  }
  if (outer) return findings.ok("host name", fmt::format("{} is {}", name, addresses));
  findings.note("host name",
                fmt::format("{} is {} on this machine, but probably not on others", name, addresses),
                "nothing to do on one machine; across machines a process with this name listens on all interfaces: set "
                "bind or advertise "
                "(POLYVERSO_ADVERTISE) if peers can't use the address below");
}

void list_interfaces(Findings& findings) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    return findings.note("interfaces", std::strerror(errno),
                         "set advertise (POLYVERSO_ADVERTISE) to an address of this machine");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::string text;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6))
      continue;
    transport::Endpoint endpoint;
    endpoint.length = one->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&endpoint.storage, one->ifa_addr, endpoint.length);
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", one->ifa_name, transport::host_port(endpoint).host,
                        (one->ifa_flags & IFF_UP) != 0 ? "" : " (down)");
  }
  if (text.empty())
    return findings.problem("interfaces", "no interface has an address", "bring loopback up: ip link set lo up");
  findings.ok("interfaces", std::move(text));
}

void examine_descriptors(const runtime::Settings& settings, Findings& findings) {
  rlimit open{};
  if (getrlimit(RLIMIT_NOFILE, &open) != 0) return;
  const uint64_t wanted = kFdsForProcess + kFdsForPeer * static_cast<uint64_t>(settings.nodes - 1);
  const std::string text = open.rlim_cur == RLIM_INFINITY ? "no limit" : fmt::format("at most {}", open.rlim_cur);
  if (open.rlim_cur >= wanted) return findings.ok("descriptors", text);
  findings.problem(
      "descriptors", fmt::format("{}, but a cluster of {} may need {}", text, settings.nodes, wanted),
      fmt::format("ulimit -n {} (at most {} without root) before the program starts", wanted, open.rlim_max));
}

}  // namespace

Findings examine_network(const runtime::Settings& settings) {
  Findings findings("network");
  examine_loopback(findings);
  examine_name(findings);
  list_interfaces(findings);
  examine_descriptors(settings, findings);
  return findings;
}

}  // namespace mv::doctor
