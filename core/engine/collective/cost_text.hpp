#pragma once
// Costs as a line of text: "inproc=3e-06,1e-10 shm=5e-06,2.5e-10 tcp=1.2e-05,9e-10 reduce=1e-10". The numbers are alpha
// and beta of each transport, then gamma, in seconds.

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "engine/collective/cost.hpp"

namespace mv::collective {

/// "shm=5e-06,2.5e-10"
std::string write_cost(base::TransportKind transport, const TransportCost& cost);
/// Writes the shortest numbers from which read_costs() restores the same costs.
std::string write_costs(const Costs& costs);
/// Reads words in any order, separated by white space. Costs that the line does not name come from `otherwise`.
/// MV_EINVAL: the message names the word and its error.
base::Result<Costs> read_costs(std::string_view line, const Costs& otherwise = {});

}  // namespace mv::collective
