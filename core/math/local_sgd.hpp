#pragma once
// The outer step of local SGD (Stich 2018) and DiLoCo (Douillard et al. 2023), for one element: the host's loops and the
// devices' kernels have this formula.

#include <cstdint>

#include "base/both.hpp"

namespace mv::math {

/// What a call computes:
///   - kMeasure: moved = outer - value, how far a rank has moved, as a gradient.
///   - kClear: moved = 0.
///   - The others make the outer step by the average of `moved`, with Nesterov's momentum. The value becomes the outer
///     one (kReplace), a mixture with it (kMix), or moves as far as it does (kFollow).
enum class Outer : int32_t { kMeasure, kClear, kReplace, kMix, kFollow };

struct OuterSettings {
  double rate = 1, momentum = 0;
  double mixing = 0;  ///< the share of the value in a mixture
};

template <typename T>
struct OuterStep {
  Outer what;
  T rate, momentum, mixing, rest;
  MV_BOTH OuterStep(Outer which, const OuterSettings& settings)
      : what(which),
        rate(static_cast<T>(settings.rate)),
        momentum(static_cast<T>(settings.momentum)),
        mixing(static_cast<T>(settings.mixing)),
        rest(static_cast<T>(1 - settings.mixing)) {}

  MV_BOTH void operator()(T& value, T& outer, T& velocity, T& moved) const {
    if (what == Outer::kMeasure || what == Outer::kClear) {
      moved = what == Outer::kClear ? T{0} : outer - value;
      return;
    }
    velocity = momentum * velocity + moved;
    const T by = rate * (moved + momentum * velocity);
    outer = outer - by;
    if (what == Outer::kFollow)
      value = value - by;
    else
      value = what == Outer::kReplace ? outer : mixing * value + rest * outer;
  }
};

}  // namespace mv::math
