#pragma once
// This machine's own addresses, as others may reach them.

#include <optional>
#include <string>

#include "transport/tcp/socket.hpp"

namespace mv::transport {

/// The first address of a network interface, numeric, IPv4 before IPv6; nothing if no interface is called so.
std::optional<std::string> interface_address(const std::string& interface);
/// The address from which packets to `remote` would leave; nothing if there is no way to it. Sends none.
std::optional<std::string> address_towards(const HostPort& remote);
/// The first address, of the family that `wildcard` has, of an interface that is up and not loopback.
std::optional<std::string> first_outer_address(const std::string& wildcard);
/// Whether a numeric host is of loopback; false for names.
bool is_loopback_text(const std::string& host);

}  // namespace mv::transport
