#pragma once
// The code of random.hpp that the library and devices share: the number of an element as a function of its bits.

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tensor/elementary-inl.hpp"

namespace mv::tensor::both {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

/// One seed gives different numbers for each distribution.
enum class Stream : uint32_t { kUniform = 0, kNormal = 1 };

struct Counter {
  uint32_t words[4];
};

/// See tensor::philox().
MV_BOTH inline Counter philox(Counter counter, uint32_t key0, uint32_t key1) {
  auto& words = counter.words;
  for (int round = 0; round < kRounds; ++round, key0 += kWeyl0, key1 += kWeyl1) {
    const uint64_t product0 = uint64_t{kMultiplier0} * words[0], product1 = uint64_t{kMultiplier1} * words[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ words[1] ^ key0, static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ words[3] ^ key1, static_cast<uint32_t>(product0)}};
  }
  return counter;
}

template <size_t kTerms>
MV_BOTH double polynomial(const double (&coefficients)[kTerms], double x) {
  double value = coefficients[0];
  for (size_t i = 1; i < kTerms; ++i) value = value * x + coefficients[i];
  return value;
}

/// See tensor::normal_quantile().
MV_BOTH inline double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q *
           polynomial({2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
                       1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0},
                      r) /
           polynomial({5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
                       5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0},
                      r);
  }
  const double tail = std::sqrt(-log(q < 0 ? p : 1 - p));
  double size;
  if (tail <= 5) {
    size = polynomial({7.7454501427834140764e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e+0,
                       3.64784832476320460504e+0, 5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0},
                      tail - 1.6) /
           polynomial({1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
                       6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0},
                      tail - 1.6);
  } else {
    size = polynomial({2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
                       2.96560571828504891230e-1, 1.78482653991729133580e+0, 5.46378491116411436990e+0, 6.65790464350110377720e+0},
                      tail - 5) /
           polynomial({2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
                       1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0},
                      tail - 5);
  }
  return q < 0 ? -size : size;
}

// The element of a distribution from its 64 random bits.

MV_BOTH inline double uniform(uint64_t word, double low, double high) {
  const double unit = static_cast<double>(word >> 11) * 0x1p-53;
  return low + unit * (high - low);
}
MV_BOTH inline double normal(uint64_t word, double mean, double deviation) {
  // The midpoint of one of 2^52 equal intervals: never 0 or 1.
  const double p = (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
  return mean + deviation * normal_quantile(p);
}
/// One of the `width` integers from `from` on; width 0 means 2^64.
MV_BOTH inline int64_t integer(uint64_t word, int64_t from, uint64_t width) {
  __extension__ using Wide = unsigned __int128;
  const uint64_t offset = width == 0 ? word : static_cast<uint64_t>(static_cast<Wide>(word) * width >> 64);
  return static_cast<int64_t>(static_cast<uint64_t>(from) + offset);
}

}  // namespace mv::tensor::both
