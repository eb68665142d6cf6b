#pragma once
// The iterations of workers on tables, as checkpoint messages carry them: in a payload, as there may be very many tables.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/payload.hpp"
#include "base/result.hpp"

namespace mv::checkpoint {

/// By the table's name.
using Clocks = std::map<std::string, uint64_t>;

/// For each table the length of its name in 32 bits, its clock in 64, and the name, all little-endian and without gaps. Null if there are none;
/// MV_EINVAL if they are more than a message carries.
base::Result<base::PayloadRef> write_clocks(const Clocks& clocks);
/// Nothing if it is no such payload.
std::optional<Clocks> read_clocks(std::span<const std::byte> payload);

}  // namespace mv::checkpoint
