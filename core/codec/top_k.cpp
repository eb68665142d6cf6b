// The topk codec: sends the values of greatest magnitude unchanged, with their indices; all others stay in the
// residual. The indices come first, u32 and ascending, then the values. Among values of equal magnitude the first ones
// are sent.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "codec/kind.hpp"
#include "math/elements.hpp"

namespace mv::codec {

namespace {

/// Up to so many values are sorted partially. A histogram takes 150 us of any number, however few, and is three times slower at this limit;
/// it is the faster one from twice to four times as many on.
constexpr size_t kFewValues = 16'384;

/// The magnitude as an integer: floats of the same sign are ordered like their bits. A NaN is greater than all others.
uint32_t size_of(float value) { return std::bit_cast<uint32_t>(value) & 0x7fff'ffff; }

/// The least of the k greatest magnitudes, and how many of the k have exactly this magnitude.
struct Limit {
  uint32_t size = 0;
  size_t ties = 0;
};

/// By partial sorting of the magnitudes.
Limit find_limit_of_few(const float* values, size_t count, size_t k) {
  std::vector<uint32_t> sizes(count);
  for (size_t i = 0; i < count; ++i) sizes[i] = size_of(values[i]);
  const auto kth = sizes.begin() + static_cast<ptrdiff_t>(k) - 1;
  std::ranges::nth_element(sizes, kth, std::greater());
  return {*kth, k - static_cast<size_t>(std::count_if(sizes.begin(), kth, [&](uint32_t size) { return size > *kth; }))};
}

/// A radix selection: a histogram of the upper 16 bits first, then of the lower ones within the decisive upper half.
/// Clearing the histograms and going through them takes longer than all else where there are few values.
Limit find_limit(const float* values, size_t count, size_t k) {
  if (count <= kFewValues) return find_limit_of_few(values, count, k);
  constexpr uint32_t kHalves = 1 << 16;
  std::vector<uint32_t> counts(kHalves);
  const auto descend = [&](size_t wanted, size_t* left) {
    uint32_t at = kHalves - 1;
    for (; counts[at] < wanted && at > 0; --at) wanted -= counts[at];
    *left = wanted;
    return at;
  };
  for (size_t i = 0; i < count; ++i) ++counts[size_of(values[i]) >> 16];
  size_t left = 0;
  const uint32_t upper = descend(k, &left);
  std::ranges::fill(counts, 0);
  for (size_t i = 0; i < count; ++i)
    if (const uint32_t size = size_of(values[i]); size >> 16 == upper) ++counts[size & 0xffff];
  Limit limit;
  limit.size = upper << 16 | descend(left, &limit.ties);
  return limit;
}

class TopK final : public Codec {
 public:
  explicit TopK(const Spec& spec)
      : Codec(spec), ratio_(spec.parameters[0]), k_(static_cast<size_t>(spec.parameters[1])) {}

  size_t encoded_bytes(size_t count) const override { return sent_of(count) * (sizeof(uint32_t) + sizeof(float)); }

  void encode(const float* gradient, float* residual, size_t count, std::byte* out) const override {
    if (count == 0) return;
    for (size_t i = 0; i < count; ++i) residual[i] += gradient[i];
    const size_t k = sent_of(count);
    const Limit limit = find_limit(residual, count, k);
    std::byte* const values = out + k * sizeof(uint32_t);
    size_t sent = 0, ties = limit.ties;
    for (size_t i = 0; i < count && sent < k; ++i) {
      const uint32_t size = size_of(residual[i]);
      if (size < limit.size || (size == limit.size && ties == 0)) continue;
      if (size == limit.size) --ties;
      math::set_element(out, sent, static_cast<uint32_t>(i));
      math::set_element(values, sent, residual[i]);
      residual[i] = 0;
      ++sent;
    }
  }

 private:
  size_t sent_of(size_t count) const {
    const double share = k_ > 0 ? static_cast<double>(k_) : std::ceil(ratio_ * static_cast<double>(count));
    return std::min(count, std::max<size_t>(1, static_cast<size_t>(share)));
  }

  void unpack(const std::byte* encoded, float* values, size_t count, bool adds) const override {
    if (!adds) std::fill_n(values, count, 0.0f);
    const size_t k = sent_of(count);
    for (size_t i = 0; i < k; ++i) {
      const auto place = math::element<uint32_t>(encoded, i);
      const auto value = math::element<float>(encoded, k + i);
      if (place < count) values[place] = adds ? values[place] + value : value;  // checked, but another process's memory may change afterwards
    }
  }

  bool is_sound(const std::byte* encoded, size_t count) const override {
    uint64_t next = 0;
    for (size_t i = 0; i < sent_of(count); ++i) {
      const auto place = math::element<uint32_t>(encoded, i);
      if (place < next || place >= count) return false;
      next = uint64_t{place} + 1;
    }
    return true;
  }

  const double ratio_;
  const size_t k_;
};

}  // namespace

const Kind kTopK = {"topk",
                    {{"ratio", 0.01, kLeastStep, 1, false, "the share of values that are sent, rounded up"},
                     {"k", 0, 0, UINT32_MAX, true, "how many values of each part are sent; 0: set by ratio"}},
                    [](const Spec& spec) -> std::unique_ptr<Codec> { return std::make_unique<TopK>(spec); }};

}  // namespace mv::codec
