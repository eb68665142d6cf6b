#pragma once
// What LocalSgd is told, as text.

#include <string_view>

#include "api/distlearn/local_sgd.hpp"

namespace mv::distlearn {

/// "inner_steps=100 outer_rate=0.7": what is not said keeps its default. MV_EINVAL with what is wrong, or known.
base::Result<LocalSettings> parse_local_settings(std::string_view text);

}  // namespace mv::distlearn
