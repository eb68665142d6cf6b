#pragma once
// Tests whether this machine reaches the master of a cluster, and if not, which step fails.

#include <string>

#include "base/clock.hpp"
#include "doctor/finding.hpp"
#include "runtime/settings.hpp"

namespace mv::doctor {

/// Whether the master must be running already. kMayRun: if nothing listens at its address, that is only a note.
enum class Expected { kRuns, kMayRun };

/// Resolves the address, connects, makes the hello, proves the secret, and leaves before the cluster notices the
/// process. Gives a finding for each step, up to the first that fails. `patience` limits each step. Of the settings, it
/// uses master, secret and those of TLS.
Findings reach_master(const runtime::Settings& settings, Expected expected, base::Nanos patience);
/// Like reach_master(), but first asks rank 0 for its address by the name of the job.
Findings reach_by_name(const runtime::Settings& settings, base::Nanos patience);

}  // namespace mv::doctor
