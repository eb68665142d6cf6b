#pragma once
// What an optimizer does otherwise for one key: MXNet's multipliers.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shard/updater/updater.hpp"

namespace mv::kvstore {

using KeyParameters = std::vector<std::pair<std::string, double>>;

/// "lr_mult=0.1 wd_mult=0". MV_EINVAL with the names that there are.
base::Result<KeyParameters> parse_key_parameters(std::string_view text);
/// The optimizer of a key with these. MV_EINVAL where it has no such parameter.
base::Result<shard::UpdaterSpec> with_key_parameters(shard::UpdaterSpec optimizer, const KeyParameters& parameters);

}  // namespace mv::kvstore
