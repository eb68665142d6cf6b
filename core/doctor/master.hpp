#pragma once
// Tests whether this machine reaches the master of a cluster, and if not, which step fails.

#include <string>

#include "base/clock.hpp"
#include "doctor/finding.hpp"

namespace mv::doctor {

/// Whether the master must be running already. kMayRun: if nothing listens at its address, that is only a note.
enum class Expected { kRuns, kMayRun };

/// Resolves the address, connects, makes the hello, proves the secret, and leaves before the cluster notices the
/// process. Gives a finding for each step, up to the first that fails. `patience` limits each step.
Findings reach_master(const std::string& master, const std::string& secret, Expected expected, base::Nanos patience);
/// Like reach_master(), but first asks rank 0 for its address by the name of the job.
Findings reach_by_name(const std::string& rendezvous, const std::string& secret, base::Nanos patience);

}  // namespace mv::doctor
