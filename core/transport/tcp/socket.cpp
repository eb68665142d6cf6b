#include "transport/tcp/socket.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace mv::transport {

base::Result<HostPort> parse_address(const std::string& address) {
  const auto wrong = [&](const char* what) {
    return base::error(MV_EINVAL, "\"{}\" is not an address: {}; expected \"host:port\" or \"[v6]:port\"", address,
                       what);
  };
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return wrong("it has no port");
  HostPort parsed{address.substr(0, colon), address.substr(colon + 1)};
  if (parsed.host.size() >= 2 && parsed.host.front() == '[' && parsed.host.back() == ']') {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  } else if (parsed.host.find(':') != std::string::npos) {
    return wrong("an IPv6 host goes in brackets");
  }
  if (parsed.host.empty()) return wrong("it has no host");
  if (parsed.host.find_first_of("[]") != std::string::npos) return wrong("a bracket in its host is out of place");
  unsigned port = 0;
  const char* end = parsed.port.data() + parsed.port.size();
  const auto [stopped, failed] = std::from_chars(parsed.port.data(), end, port);
  if (failed != std::errc() || stopped != end || port > 65535) return wrong("the port is not a number from 0 to 65535");
  return parsed;
}

std::string to_text(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", address.host, address.port) : fmt::format("{}:{}", address.host, address.port);
}

bool is_wildcard(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

bool is_loopback(const Endpoint& endpoint) {
  if (endpoint.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&endpoint.storage);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&endpoint.storage);
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

HostPort host_port(const Endpoint& endpoint) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(endpoint.get(), endpoint.length, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {"?", "0"};
  return {host, port};
}

Endpoint local_endpoint(int fd) {
  Endpoint endpoint;
  endpoint.length = sizeof endpoint.storage;
  if (getsockname(fd, endpoint.get(), &endpoint.length) != 0) endpoint.length = 0;
  return endpoint;
}

Endpoint remote_endpoint(int fd) {
  Endpoint endpoint;
  endpoint.length = sizeof endpoint.storage;
  if (getpeername(fd, endpoint.get(), &endpoint.length) != 0) endpoint.length = 0;
  return endpoint;
}

std::string ends_of(int fd, bool dialed) {
  const std::string here = to_text(host_port(local_endpoint(fd))), there = to_text(host_port(remote_endpoint(fd)));
  return dialed ? here + ">" + there : there + ">" + here;
}

base::Result<std::vector<Endpoint>> resolve(const HostPort& address, bool numeric_only, bool to_listen) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (numeric_only ? AI_NUMERICHOST : 0) | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* info = found; failed == 0 && info != nullptr; info = info->ai_next) {
    Endpoint& endpoint = endpoints.emplace_back();
    std::memcpy(&endpoint.storage, info->ai_addr, info->ai_addrlen);
    endpoint.length = info->ai_addrlen;
  }
  if (found != nullptr) freeaddrinfo(found);
  if (failed != 0 && !(numeric_only && failed == EAI_NONAME))
    return base::error(MV_EUNREACHABLE, "{}: {}", to_text(address), gai_strerror(failed));
  return endpoints;
}

base::Result<Fd> listen_on(const Endpoint& endpoint) {
  const std::string where = to_text(host_port(endpoint));
  Fd fd(socket(endpoint.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto failed = [&](int error) {
    if (error == EADDRINUSE)
      return base::error(MV_EADDRINUSE,
                         "can't listen on {}: another process already does; choose another port, or 0 for any", where);
    return base::error(MV_ESYSTEM, "can't listen on {}: {}", where, std::strerror(error));
  };
  if (!fd) return failed(errno);
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // despite connections of an ended process
  if (bind(fd.get(), endpoint.get(), endpoint.length) != 0) return failed(errno);
  if (listen(fd.get(), SOMAXCONN) != 0) return failed(errno);
  return fd;
}

Fd start_connect(const Endpoint& endpoint, int* failure) {
  *failure = 0;
  Fd fd(socket(endpoint.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    *failure = errno;
    return fd;
  }
  prepare_stream(fd.get(), endpoint);
  if (connect(fd.get(), endpoint.get(), endpoint.length) != 0 && errno != EINPROGRESS) {
    *failure = errno;
    fd.reset();
  }
  return fd;
}

void prepare_stream(int fd, const Endpoint& remote) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // If bbr is the default, it paces even traffic within the machine, to half of its speed.
  constexpr char kNoPacing[] = "cubic";
  if (is_loopback(remote)) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kNoPacing, sizeof kNoPacing - 1);
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
}

int connect_result(int fd) {
  int error = 0;
  socklen_t length = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

}  // namespace mv::transport
