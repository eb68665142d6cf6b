#pragma once
// From how long operations took to what a transport costs.

#include <span>

#include "engine/collective/cost.hpp"

namespace mv::collective {

/// An operation whose time should be messages * alpha + bytes * beta: what is in a row, not what is sent in all.
struct Sample {
  double messages = 0, bytes = 0, seconds = 0;
};

struct Fit {
  TransportCost cost;
  double error = 0;  ///< how far the samples are from it: the root of the mean square, as a part of their times
};

/// Least squares of the relative errors, so that the small count as much as the large. Neither cost is negative; without samples both are 0.
Fit fit(std::span<const Sample> samples);

}  // namespace mv::collective
