#include "engine/collective/cost_fit.hpp"

#include <algorithm>
#include <cmath>

namespace mv::collective {
namespace {

/// The sums of the normal equations, with each sample divided by its time.
struct Sums {
  double messages2 = 0, both = 0, bytes2 = 0, messages = 0, bytes = 0;
};

Sums add_up(std::span<const Sample> samples) {
  Sums sums;
  for (const Sample& sample : samples) {
    if (!(sample.seconds > 0)) continue;
    const double messages = sample.messages / sample.seconds, bytes = sample.bytes / sample.seconds;
    sums.messages2 += messages * messages;
    sums.both += messages * bytes;
    sums.bytes2 += bytes * bytes;
    sums.messages += messages;
    sums.bytes += bytes;
  }
  return sums;
}

/// Solves a x = b; 0 if a is 0.
double solve(double a, double b) { return a > 0 ? b / a : 0; }

TransportCost solve(const Sums& sums) {
  const double determinant = sums.messages2 * sums.bytes2 - sums.both * sums.both;
  if (determinant > 1e-12 * sums.messages2 * sums.bytes2) {
    const TransportCost cost{(sums.messages * sums.bytes2 - sums.bytes * sums.both) / determinant,
                        (sums.bytes * sums.messages2 - sums.messages * sums.both) / determinant};
    if (cost.alpha >= 0 && cost.beta >= 0) return cost;
    if (cost.beta < 0) return {solve(sums.messages2, sums.messages), 0};
    return {0, solve(sums.bytes2, sums.bytes)};
  }
  if (sums.messages2 > 0) return {solve(sums.messages2, sums.messages), 0};
  return {0, solve(sums.bytes2, sums.bytes)};
}

}  // namespace

Fit fit(std::span<const Sample> samples) {
  Fit result{solve(add_up(samples)), 0};
  double squares = 0, count = 0;
  for (const Sample& sample : samples) {
    if (!(sample.seconds > 0)) continue;
    const double modelled = sample.messages * result.cost.alpha + sample.bytes * result.cost.beta;
    squares += std::pow(modelled / sample.seconds - 1, 2);
    ++count;
  }
  result.error = count > 0 ? std::sqrt(squares / count) : 0;
  return result;
}

}  // namespace mv::collective
