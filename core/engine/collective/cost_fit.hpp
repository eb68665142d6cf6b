#pragma once
// Fits the costs of a transport to measured times of operations.

#include <span>

#include "engine/collective/cost.hpp"

namespace mv::collective {

/// A measured operation, modelled as messages * alpha + bytes * beta. Both numbers count the critical path, not all
/// traffic.
struct Sample {
  double messages = 0, bytes = 0, seconds = 0;
};

struct Fit {
  TransportCost cost;
  double error = 0;  ///< root mean square of the samples' relative errors
};

/// Least squares of the relative errors, so short operations weigh as much as long ones. Neither cost is negative;
/// without samples both are 0.
Fit fit(std::span<const Sample> samples);

}  // namespace mv::collective
