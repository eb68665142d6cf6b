#pragma once
// KeyParameters: MXNet's multipliers, which modify the optimizer for one key.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shard/updater/updater.hpp"

namespace mv::kvstore {

using KeyParameters = std::vector<std::pair<std::string, double>>;

/// Parses "lr_mult=0.1 wd_mult=0". MV_EINVAL lists the names.
base::Result<KeyParameters> parse_key_parameters(std::string_view text);
/// The optimizer with a key's parameters. MV_EINVAL if it has no such parameter.
base::Result<shard::UpdaterSpec> with_key_parameters(shard::UpdaterSpec optimizer, const KeyParameters& parameters);

}  // namespace mv::kvstore
