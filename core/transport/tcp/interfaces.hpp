#pragma once
// The addresses at which other machines may reach this one.

#include <optional>
#include <string>

#include "transport/tcp/socket.hpp"

namespace mv::transport {

/// The first address of a network interface, numeric, IPv4 before IPv6; empty if there is no interface of that name.
std::optional<std::string> interface_address(const std::string& interface);
/// The local address from which packets to `remote` would leave; empty if there is no route. Sends no packet.
std::optional<std::string> address_towards(const HostPort& remote);
/// The first address of an interface that is up and not loopback, in the address family of `wildcard`.
std::optional<std::string> first_outer_address(const std::string& wildcard);
/// Whether a numeric host is a loopback address; false for names.
bool is_loopback_text(const std::string& host);

}  // namespace mv::transport
