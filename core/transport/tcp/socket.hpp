#pragma once
// Addresses and sockets for the TCP transport.

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/result.hpp"
#include "transport/fd.hpp"

namespace mv::transport {

/// "host:port", "1.2.3.4:port", "[v6]:port".
struct HostPort {
  std::string host, port;
};
/// MV_EINVAL; the message names the expected form.
base::Result<HostPort> parse_address(const std::string& address);
std::string to_text(const HostPort& address);
bool is_wildcard(const std::string& host);

/// A socket address, IPv4 or IPv6.
struct Endpoint {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};
bool is_loopback(const Endpoint& endpoint);
HostPort host_port(const Endpoint& endpoint);
Endpoint local_endpoint(int fd);
Endpoint remote_endpoint(int fd);

/// Both addresses of a connected socket, the dialer's first. Both ends compute the same text unless a relay intervenes.
std::string ends_of(int fd, bool dialed);

/// Resolves `address`. With `numeric_only` it never asks a name server, and may return an empty list.
base::Result<std::vector<Endpoint>> resolve(const HostPort& address, bool numeric_only, bool to_listen);

/// A listening, non-blocking socket. MV_EADDRINUSE, MV_ESYSTEM.
base::Result<Fd> listen_on(const Endpoint& endpoint);
/// Starts a non-blocking connect; `*failure` is the errno if it failed at once, else 0.
Fd start_connect(const Endpoint& endpoint, int* failure);
/// Makes a socket non-blocking and close-on-exec, and disables Nagle's algorithm; within this machine also pacing.
void prepare_stream(int fd, const Endpoint& remote);
/// The errno of a finished connection attempt; 0 if it succeeded.
int connect_result(int fd);

}  // namespace mv::transport
