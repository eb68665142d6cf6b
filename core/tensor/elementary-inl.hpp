#pragma once
// The code of elementary.hpp, for the library and for devices.
//
// The methods, and the coefficients of their minimax polynomials, are those that Sun's fdlibm documents in e_exp.c and
// e_log.c (K. C. Ng, 1993); the code is ours.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/both.hpp"

namespace mv::tensor::both {

// ln 2 in two parts: the low bits of the first are zero, so small multiples of it are exact.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

MV_BOTH inline double power_of_two(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

/// value * 2^power for |power| <= 1100. The result may be subnormal.
MV_BOTH inline double scale(double value, int power) {
  const int half = power / 2;
  return value * power_of_two(half) * power_of_two(power - half);
}

/// x = k ln 2 + r with |r| <= ln 2 / 2, and exp(r) = 1 + 2r / (R(r) - r); R is even, by a minimax polynomial.
MV_BOTH inline double exp(double x) {
  if (std::isnan(x)) return x;
  if (x > 709.782712893384) return kInfinity;
  if (x < -745.2) return 0;
  const double k = std::nearbyint(x * 1.44269504088896338700);
  const double high = x - k * kLn2High, low = k * kLn2Low;
  const double r = high - low, square = r * r;
  const double series =
      r - square * (1.66666666666666019037e-01 +
                    square * (-2.77777777770155933842e-03 +
                              square * (6.61375632143793436117e-05 + square * (-1.65339022054652515390e-06 + square * 4.13813679705723846039e-08))));
  const double result = 1.0 - ((low - r * series / (2.0 - series)) - high);
  return scale(result, static_cast<int>(k));
}

/// x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2); log(1 + f) = f - s (f - R(s)) with s = f / (2 + f); R is a
/// minimax polynomial.
MV_BOTH inline double log(double x) {
  if (std::isnan(x) || x == kInfinity) return x;
  if (x == 0) return -kInfinity;
  if (x < 0) return std::numeric_limits<double>::quiet_NaN();
  int power = 0;
  double fraction = std::frexp(x, &power);  // [1/2, 1)
  if (fraction < 0.70710678118654752440) {
    fraction *= 2;
    --power;
  }
  const double f = fraction - 1, k = power;
  const double s = f / (2.0 + f), z = s * s, w = z * z;
  const double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double odd = z * (6.666666666666735130e-01 + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half_square = 0.5 * f * f;
  const double correction = s * (half_square + (even + odd));
  return k * kLn2High - ((half_square - (correction + k * kLn2Low)) - f);
}

}  // namespace mv::tensor::both
