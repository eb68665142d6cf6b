#include "tensor/random.hpp"

#include <algorithm>
#include <cmath>

#include "tensor/cast.hpp"
#include "tensor/elementary.hpp"

namespace mv::tensor {

namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

/// One seed gives different numbers for each distribution.
enum class Stream : uint32_t { kUniform = 0, kNormal = 1 };

/// The number of blocks computed in parallel (SIMD).
constexpr size_t kSide = 16;

/// philox() of kSide consecutive counters: words[w][k] is word w of block first + k.
void philox_side(uint64_t first, Stream stream, uint64_t seed, uint32_t (&words)[4][kSide]) {
  for (size_t k = 0; k < kSide; ++k) {
    words[0][k] = static_cast<uint32_t>(first + k);
    words[1][k] = static_cast<uint32_t>((first + k) >> 32);
    words[2][k] = 0;
    words[3][k] = static_cast<uint32_t>(stream);
  }
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kRounds; ++round, key0 += kWeyl0, key1 += kWeyl1) {
    for (size_t k = 0; k < kSide; ++k) {
      const uint64_t product0 = uint64_t{kMultiplier0} * words[0][k], product1 = uint64_t{kMultiplier1} * words[2][k];
      words[0][k] = static_cast<uint32_t>(product1 >> 32) ^ words[1][k] ^ key0;
      words[1][k] = static_cast<uint32_t>(product1);
      words[2][k] = static_cast<uint32_t>(product0 >> 32) ^ words[3][k] ^ key1;
      words[3][k] = static_cast<uint32_t>(product0);
    }
  }
}

/// tensor[i] = make(the 64 random bits of element i), which are the first or second half of block i / 2.
template <typename T, typename Make>
void fill_from(const Tensor& tensor, mv_dtype made, int64_t seed, Stream stream, Make make) {
  constexpr size_t kBatch = 2 * kSide;
  T values[kBatch];
  uint32_t words[4][kSide];
  for (size_t i = 0; i < tensor.stored(); i += kBatch) {
    philox_side(i / 2, stream, static_cast<uint64_t>(seed), words);
    for (size_t k = 0; k < kSide; ++k) {
      values[2 * k] = make(words[0][k] | uint64_t{words[1][k]} << 32);
      values[2 * k + 1] = make(words[2][k] | uint64_t{words[3][k]} << 32);
    }
    cast_elements(tensor.dtype, tensor.data + i * dtype_bytes(tensor.dtype), made,
                  reinterpret_cast<const std::byte*>(values), std::min(kBatch, tensor.stored() - i));
  }
}

template <size_t kTerms>
double polynomial(const double (&coefficients)[kTerms], double x) {
  double value = coefficients[0];
  for (size_t i = 1; i < kTerms; ++i) value = value * x + coefficients[i];
  return value;
}

base::Status fill_integers(const char* function, const Tensor& tensor, int64_t seed, double low, double high) {
  const double limit = tensor.dtype == MV_U8 ? 0x1p8 : tensor.dtype == MV_I8 ? 0x1p7 : tensor.dtype == MV_I32 ? 0x1p31 : 0x1p63;
  const double least = tensor.dtype == MV_U8 ? 0 : -limit;
  if (low != std::floor(low) || high != std::floor(high) || low < least || high > limit) {
    return base::error(MV_EINVAL, "{}: range {} .. {} - 1 for {}: both limits must be whole numbers of its dtype", function,
                       low, high, tensor.text());
  }
  const auto from = static_cast<int64_t>(low);
  // high may be 2^63, and high - low may be 2^64. That is 0 here, and means all 64 bits.
  const uint64_t end = high == 0x1p63 ? uint64_t{1} << 63 : static_cast<uint64_t>(static_cast<int64_t>(high));
  const uint64_t width = end - static_cast<uint64_t>(from);
  fill_from<int64_t>(tensor, MV_I64, seed, Stream::kUniform, [=](uint64_t word) {
    __extension__ using Wide = unsigned __int128;
    const uint64_t offset = width == 0 ? word : static_cast<uint64_t>(static_cast<Wide>(word) * width >> 64);
    return static_cast<int64_t>(static_cast<uint64_t>(from) + offset);
  });
  return {};
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0], product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double normal_quantile(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q *
           polynomial(
               {2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
                1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0},
               r) /
           polynomial(
               {5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
                5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0},
               r);
  }
  const double tail = std::sqrt(-log(q < 0 ? p : 1 - p));
  double size;
  if (tail <= 5) {
    size = polynomial({7.7454501427834140764e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                       1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
                       4.63033784615654529590e+0, 1.42343711074968357734e+0},
                      tail - 1.6) /
           polynomial({1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
                       1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e+0,
                       2.05319162663775882187e+0, 1.0},
                      tail - 1.6);
  } else {
    size = polynomial({2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                       2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
                       5.46378491116411436990e+0, 6.65790464350110377720e+0},
                      tail - 5) /
           polynomial({2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
                       7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
                       5.99832206555887937690e-1, 1.0},
                      tail - 5);
  }
  return q < 0 ? -size : size;
}

base::Status fill_uniform(const char* function, const Tensor& tensor, int64_t seed, double low, double high) {
  if (auto status = need_dense(function, tensor); !status.ok()) return status;
  if (!(low < high) || !std::isfinite(high - low))
    return base::error(MV_EINVAL, "{}: low is {}, high is {}: both must be finite, with low < high", function, low,
                       high);
  if (!is_floating(tensor.dtype)) return fill_integers(function, tensor, seed, low, high);
  fill_from<double>(tensor, MV_F64, seed, Stream::kUniform, [=](uint64_t word) {
    const double unit = static_cast<double>(word >> 11) * 0x1p-53;
    return low + unit * (high - low);
  });
  return {};
}

base::Status fill_normal(const char* function, const Tensor& tensor, int64_t seed, double mean, double deviation) {
  if (auto status = need_dense(function, tensor); !status.ok()) return status;
  if (!is_floating(tensor.dtype))
    return base::error(MV_EDTYPE, "{}: {} holds integers: a normal distribution needs a floating-point dtype", function, tensor.text());
  if (!std::isfinite(mean) || !(deviation >= 0) || !std::isfinite(deviation)) {
    return base::error(MV_EINVAL,
                       "{}: mean is {}, deviation is {}: both must be finite, the deviation at least 0", function,
                       mean, deviation);
  }
  fill_from<double>(tensor, MV_F64, seed, Stream::kNormal, [=](uint64_t word) {
    // The midpoint of one of 2^52 equal intervals: never 0 or 1.
    const double p = (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
    return mean + deviation * normal_quantile(p);
  });
  return {};
}

}  // namespace mv::tensor
