#pragma once
// Whether the keeper by which processes find each other answers, and what it knows of this cluster.

#include "base/clock.hpp"
#include "doctor/finding.hpp"
#include "runtime/settings.hpp"

namespace mv::doctor {

/// Asks the keeper that the settings name. Blocks for at most `patience`, or a little longer.
Findings reach_keeper(const runtime::Settings& settings, base::Nanos patience);

}  // namespace mv::doctor
