#pragma once
// What this machine offers to a node. Everything that can be tried is tried, not looked up.

#include "doctor/finding.hpp"
#include "runtime/settings.hpp"

namespace mv::doctor {

/// Processors, how many of them this process may use, and what that means for waits that spin.
Findings examine_processors(const runtime::Settings& settings);
/// Memory, memory that processes share, and the way it is passed on.
Findings examine_memory(const runtime::Settings& settings);
/// Loopback, this machine's name and interfaces, and the descriptors that connections take.
Findings examine_network(const runtime::Settings& settings);
/// Where a node with these settings listens, and what it tells others: bound for a moment, to see whether it can be.
Findings examine_addresses(const runtime::Settings& settings);
/// The library itself.
Findings examine_build();

}  // namespace mv::doctor
