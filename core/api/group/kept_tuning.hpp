#pragma once
// How a group in shared memory chooses its algorithms: by the setting `tuning`, and by the results of this user's earlier
// groups on this machine.

#include <string>
#include <vector>

#include "base/result.hpp"
#include "intranode/choices.hpp"

namespace mv::api {

/// Checks the setting. "auto" uses the kept results, tries the rest, and keeps the new results. "trial" tries everything
/// again and keeps the results. "fixed" uses the defaults. The name of an algorithm uses that one wherever it fits. The
/// last two are reproducible. Any other text is MV_EINVAL.
base::Status check_tuning(const std::string& setting);
/// The tuning of a group, made by its lowest rank. Reads a small file if the setting is "auto". `setting` is valid.
intranode::Tuning tuning_for(const std::string& setting, size_t ranks);
/// Keeps the results of the trials in a file. Failing to write it is no error.
void keep_tuning(const std::string& setting, size_t ranks, const std::vector<intranode::Decision>& decisions);

}  // namespace mv::api
