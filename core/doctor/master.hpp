#pragma once
// Whether this machine reaches the master of a cluster, and if not, at which step it ends.

#include <string>

#include "base/clock.hpp"
#include "doctor/finding.hpp"

namespace mv::doctor {

/// Whether nobody's listening there is wrong, or only early.
enum class Expected { kRuns, kMayRun };

/// Resolves, connects, says hello, proves the secret, and says goodbye before the cluster takes notice. A finding for each step, up to
/// the first that fails; each may take `patience`.
Findings reach_master(const std::string& master, const std::string& secret, Expected expected, base::Nanos patience);
/// The same where rank 0 is to be asked for its address under the name of the job.
Findings reach_by_name(const std::string& rendezvous, const std::string& secret, base::Nanos patience);

}  // namespace mv::doctor
