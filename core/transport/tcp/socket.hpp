#pragma once
// Addresses and sockets, as far as the TCP transport needs them.

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
/// MV_EINVAL, with what was expected.
base::Result<HostPort> parse_address(const std::string& address);
std::string to_text(const HostPort& address);
bool is_wildcard(const std::string& host);

/// A socket address, in one of the two families.
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

/// Both ends of a connected socket, the dialer's first: the same text at either end unless something in between relays.
std::string ends_of(int fd, bool dialed);

/// Looks `address` up; with `numeric_only` it never asks a name server and may come back empty.
base::Result<std::vector<Endpoint>> resolve(const HostPort& address, bool numeric_only, bool to_listen);

/// A socket that listens, non-blocking. MV_EADDRINUSE, MV_ESYSTEM.
base::Result<Fd> listen_on(const Endpoint& endpoint);
/// Starts a connection, non-blocking; `*failure` is the errno if it failed at once.
Fd start_connect(const Endpoint& endpoint, int* failure);
/// Non-blocking, close-on-exec, without Nagle's delay; within this machine also without pacing.
void prepare_stream(int fd, const Endpoint& remote);
/// The error that a connection attempt ended with; 0 if it stands.
int connect_result(int fd);

}  // namespace mv::transport
