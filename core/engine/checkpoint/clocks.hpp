#pragma once
// The clocks of tables in checkpoint messages. They travel in the payload, because a cluster may have very many tables.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/payload.hpp"
#include "base/result.hpp"

namespace mv::checkpoint {

/// Clock by the name of the table.
using Clocks = std::map<std::string, uint64_t>;

/// Serializes clocks: for each table, the length of its name (32 bits), its clock (64 bits) and the name, little-endian
/// and without gaps. Null if there are none; MV_EINVAL if they exceed the payload limit of a message.
base::Result<base::PayloadRef> write_clocks(const Clocks& clocks);
/// Parses such a payload; nullopt if it is malformed.
std::optional<Clocks> read_clocks(std::span<const std::byte> payload);

}  // namespace mv::checkpoint
