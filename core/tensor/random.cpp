#include "tensor/random.hpp"

#include <algorithm>
#include <cmath>

#include "tensor/cast.hpp"
#include "tensor/device.hpp"
#include "tensor/random-inl.hpp"

namespace mv::tensor {

namespace {

using both::kMultiplier0, both::kMultiplier1, both::kRounds, both::kWeyl0, both::kWeyl1, both::Stream;

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
  if (Device* const device = device_of(tensor); device != nullptr) return device->draw(tensor, {seed, false, 0, 0, from, width});
  fill_from<int64_t>(tensor, MV_I64, seed, Stream::kUniform, [=](uint64_t word) { return both::integer(word, from, width); });
  return {};
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  const auto made = both::philox({{counter[0], counter[1], counter[2], counter[3]}}, key[0], key[1]);
  return std::to_array(made.words);
}

double normal_quantile(double p) { return both::normal_quantile(p); }

base::Status fill_uniform(const char* function, const Tensor& tensor, int64_t seed, double low, double high) {
  if (auto status = need_dense(function, tensor); !status.ok()) return status;
  if (!(low < high) || !std::isfinite(high - low))
    return base::error(MV_EINVAL, "{}: low is {}, high is {}: both must be finite, with low < high", function, low,
                       high);
  if (!is_floating(tensor.dtype)) return fill_integers(function, tensor, seed, low, high);
  if (Device* const device = device_of(tensor); device != nullptr) return device->draw(tensor, {seed, false, low, high, 0, 0});
  fill_from<double>(tensor, MV_F64, seed, Stream::kUniform, [=](uint64_t word) { return both::uniform(word, low, high); });
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
  if (Device* const device = device_of(tensor); device != nullptr) return device->draw(tensor, {seed, true, mean, deviation, 0, 0});
  fill_from<double>(tensor, MV_F64, seed, Stream::kNormal, [=](uint64_t word) { return both::normal(word, mean, deviation); });
  return {};
}

}  // namespace mv::tensor
