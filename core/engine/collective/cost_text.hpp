#pragma once
// Costs as one line: "inproc=3e-06,1e-10 shm=5e-06,2.5e-10 tcp=2.5e-05,9e-10 reduce=1e-10". A transport's alpha and beta, then gamma, in seconds.

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "engine/collective/cost.hpp"

namespace mv::collective {

/// "shm=5e-06,2.5e-10"
std::string write_cost(base::TransportKind transport, const TransportCost& cost);
/// Every number as short as it can be, such that read_costs() gives the same costs.
std::string write_costs(const Costs& costs);
/// Words in any order, between white space. What a line does not name is as in `otherwise`. MV_EINVAL names the word and what is wrong with it.
base::Result<Costs> read_costs(std::string_view line, const Costs& otherwise = {});

}  // namespace mv::collective
