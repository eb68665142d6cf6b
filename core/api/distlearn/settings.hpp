#pragma once
// parse_local_settings(): reads LocalSgd's settings from text.

#include <string_view>

#include "api/distlearn/local_sgd.hpp"

namespace mv::distlearn {

/// "inner_steps=100 outer_rate=0.7"; settings left out keep their defaults. MV_EINVAL says what is
/// wrong, or lists the names.
base::Result<LocalSettings> parse_local_settings(std::string_view text);

}  // namespace mv::distlearn
