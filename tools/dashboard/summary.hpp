#pragma once
// Shortens the status of a large cluster, in which the connections of all pairs are nearly all of the text.

#include <nlohmann/json_fwd.hpp>

namespace mv::tools {

/// Up to this many members, the page shows all pairs.
inline constexpr size_t kMostMembersWithPairs = 32;
inline constexpr size_t kBusiestPairs = 20;

/// Replaces `peers` of each member by `transports` ({"tcp": 250}), and adds `busiest` to the status: the pairs with the most traffic, as
/// {"from", "to" (ranks), "transport", "sent_bytes_per_second"}. False, and no change, if the cluster is not large.
bool summarize_pairs(nlohmann::json& status);

}  // namespace mv::tools
