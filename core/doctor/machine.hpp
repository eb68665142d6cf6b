#pragma once
// Examinations of this machine: what it offers to a node. Where possible, they try an operation instead of reading a
// setting.

#include "doctor/finding.hpp"
#include "runtime/settings.hpp"

namespace mv::doctor {

/// Processors, how many of them this process may use, and the effect on waits that spin.
Findings examine_processors(const runtime::Settings& settings);
/// Memory, shared memory, and passing its descriptors between processes.
Findings examine_memory(const runtime::Settings& settings);
/// Loopback, the name and interfaces of this machine, and the limit of descriptors.
Findings examine_network(const runtime::Settings& settings);
/// The transports that a node with these settings has, and why. Tries UCX if it is among them.
Findings examine_transports(const runtime::Settings& settings);
/// The addresses where a node with these settings listens, and that it advertises. Binds them for a moment as a test.
Findings examine_addresses(const runtime::Settings& settings);
/// Devices for tensors, with their drivers; or what is missing. Loads the plug-in.
Findings examine_devices();
/// The library: version, file, compiler and instruction set.
Findings examine_build();

}  // namespace mv::doctor
