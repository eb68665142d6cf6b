// MXNet's 1bit and 2bit codecs. A 32-bit word holds 32 or 16 values, from the highest bits of its first byte on. A
// partial last word is padded with zeros.
//
// 1bit sends scale (1 in MXNet) for values above the threshold, whose bit is set, and -scale for all others. 2bit sends
// threshold as 11, -threshold as 10, and 0 as 00. Compiled once per instruction set, like core/math.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/bits.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "codec/kind.hpp"
#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::codec::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using math::HWY_NAMESPACE::load;
using math::HWY_NAMESPACE::store;

/// The lowest bit of each value in its little-endian word.
template <size_t kBits>
struct Lowest {
  constexpr Lowest() : of() {
    for (uint32_t i = 0; i < 32 / kBits; ++i) of[i] = UINT32_C(1) << (kBits * i / 8 * 8 + 8 - kBits - kBits * i % 8);
  }
  alignas(64) uint32_t of[32 / kBits];
};
template <size_t kBits>
constexpr Lowest<kBits> kLowest;

template <size_t kBits>
HWY_INLINE void encode_words(const float* gradient, float* residual, size_t words, std::byte* out, float threshold, float scale) {
  constexpr size_t kValues = 32 / kBits;
  const hn::CappedTag<float, kValues> tag;
  const hn::RebindToUnsigned<decltype(tag)> bits;
  const auto limit = hn::Set(tag, threshold), positive = hn::Set(tag, scale), negative = hn::Set(tag, -scale);
  for (size_t word = 0; word < words; ++word, gradient += kValues, residual += kValues) {
    auto codes = hn::Zero(bits);
    for (size_t i = 0; i < kValues; i += hn::Lanes(tag)) {
      const auto total = hn::Add(load(tag, residual + i), load(tag, gradient + i));
      const auto above = kBits == 1 ? hn::Gt(total, limit) : hn::Ge(total, limit);
      auto sent = negative;
      auto code = hn::Zero(bits), bit = load(bits, kLowest<kBits>.of + i);
      if constexpr (kBits == 2) {
        const auto below = hn::Le(total, negative);
        sent = hn::IfThenElseZero(below, negative);
        code = hn::IfThenElseZero(hn::RebindMask(bits, below), hn::Add(bit, bit));
        bit = hn::Add(bit, hn::Add(bit, bit));
      }
      store(hn::Sub(total, hn::IfThenElse(above, positive, sent)), tag, residual + i);
      codes = hn::Or(codes, hn::IfThenElse(hn::RebindMask(bits, above), bit, code));
    }
    const uint32_t all = hn::GetLane(hn::SumOfLanes(bits, codes));
    std::memcpy(out + word * sizeof all, &all, sizeof all);
  }
}

template <size_t kBits, bool kAdd>
HWY_INLINE void decode_words(const std::byte* encoded, float* values, size_t words, float scale) {
  constexpr size_t kValues = 32 / kBits;
  const hn::CappedTag<float, kValues> tag;
  const hn::RebindToUnsigned<decltype(tag)> bits;
  const auto positive = hn::Set(tag, scale), negative = hn::Set(tag, -scale);
  for (size_t word = 0; word < words; ++word, values += kValues) {
    const auto all = hn::Set(bits, math::element<uint32_t>(encoded, word));
    for (size_t i = 0; i < kValues; i += hn::Lanes(tag)) {
      const auto bit = load(bits, kLowest<kBits>.of + i);
      auto sent = hn::IfThenElse(hn::RebindMask(tag, hn::TestBit(all, bit)), positive, negative);
      if constexpr (kBits == 2) sent = hn::IfThenElseZero(hn::RebindMask(tag, hn::TestBit(all, hn::Add(bit, bit))), sent);
      store(kAdd ? hn::Add(load(tag, values + i), sent) : sent, tag, values + i);
    }
  }
}

void encode_bits(size_t bits, const float* gradient, float* residual, size_t words, std::byte* out, float threshold, float scale) {
  if (bits == 1) return encode_words<1>(gradient, residual, words, out, threshold, scale);
  encode_words<2>(gradient, residual, words, out, threshold, scale);
}
void decode_bits(size_t bits, bool adds, const std::byte* encoded, float* values, size_t words, float scale) {
  if (bits == 1) return adds ? decode_words<1, true>(encoded, values, words, scale) : decode_words<1, false>(encoded, values, words, scale);
  return adds ? decode_words<2, true>(encoded, values, words, scale) : decode_words<2, false>(encoded, values, words, scale);
}

}  // namespace mv::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::codec {
HWY_EXPORT(encode_bits);
HWY_EXPORT(decode_bits);

namespace {

constexpr size_t kWordBytes = sizeof(uint32_t), kMostValues = 32;

class Bits final : public Codec {
 public:
  Bits(const Spec& spec, size_t bits)
      : Codec(spec), bits_(bits), threshold_(static_cast<float>(spec.parameters.front())), scale_(static_cast<float>(spec.parameters.back())) {}
  size_t encoded_bytes(size_t count) const override { return kWordBytes * (count / values_ + (count % values_ != 0 ? 1 : 0)); }
  void encode(const float* gradient, float* residual, size_t count, std::byte* out) const override {
    const auto kernel = HWY_DYNAMIC_DISPATCH(encode_bits);
    const size_t words = count / values_, done = words * values_, rest = count - done;
    kernel(bits_, gradient, residual, words, out, threshold_, scale_);
    if (rest == 0) return;
    std::array<float, kMostValues> last{}, left{};
    std::copy_n(gradient + done, rest, last.begin());
    std::copy_n(residual + done, rest, left.begin());
    std::byte* const word = out + words * kWordBytes;
    kernel(bits_, last.data(), left.data(), 1, word, threshold_, scale_);
    std::copy_n(left.begin(), rest, residual + done);
    // With a negative threshold, the zeros after the last values are above it: clear their bits.
    const size_t used = rest * bits_;
    word[used / 8] &= static_cast<std::byte>(0xff00 >> used % 8);
    std::fill(word + used / 8 + 1, word + kWordBytes, std::byte{0});
  }

 private:
  void unpack(const std::byte* encoded, float* values, size_t count, bool adds) const override {
    const auto kernel = HWY_DYNAMIC_DISPATCH(decode_bits);
    const size_t words = count / values_, done = words * values_, rest = count - done;
    kernel(bits_, adds, encoded, values, words, scale_);
    if (rest == 0) return;
    std::array<float, kMostValues> last{};
    std::copy_n(values + done, rest, last.begin());
    kernel(bits_, adds, encoded + words * kWordBytes, last.data(), 1, scale_);
    std::copy_n(last.begin(), rest, values + done);
  }

  const size_t bits_, values_ = 32 / bits_;
  const float threshold_, scale_;  ///< 2bit has one parameter, which is both
};

template <size_t kBits>
std::unique_ptr<Codec> make_bits(const Spec& spec) {
  return std::make_unique<Bits>(spec, kBits);
}

}  // namespace

const Kind kOneBit = {
    "1bit",
    {{"threshold", 0.5, -kLargest, kLargest, false, "values above it are sent as the scale, others as its negative"},
     {"scale", 1, kLeastStep, kLargest, false, "the magnitude that is sent"}},
    make_bits<1>};
const Kind kTwoBit = {
    "2bit",
    {{"threshold", 0.5, kLeastStep, kLargest, false, "values whose magnitude reaches it are sent as +- this"}},
    make_bits<2>};

}  // namespace mv::codec
#endif  // HWY_ONCE
