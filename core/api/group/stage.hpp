#pragma once
// Copies in the host's memory of a group operation's arrays that are on devices.

#include <memory>
#include <vector>

#include "api/staging/staging.hpp"
#include "engine/collective/operation.hpp"

namespace mv::api {

/// Copies to the host what this rank's operation, which is checked, reads, and lets it use the copies. Null: nothing is on a device.
base::Result<std::shared_ptr<Staging>> stage_operation(collective::Operation& operation, uint64_t rank, uint64_t ranks, const FindDevice& find);
/// Likewise for arrays that are read and written.
base::Result<std::shared_ptr<Staging>> stage_arrays(std::vector<collective::Array>& arrays, const FindDevice& find);

}  // namespace mv::api
