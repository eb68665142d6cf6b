// MXNet's 2bit codec: sends threshold, 0 or -threshold for each value, with 16 values in a 32-bit word. Value i is in
// byte i / 4, the first in the highest two bits: 11 is the threshold, 10 its negative, 00 is 0. A partial last word is
// padded with zeros. Compiled once per instruction set, like core/math.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/two_bit.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "codec/kind.hpp"
#include "codec/words.hpp"
#include "math/lanes-inl.hpp"

#ifndef MV_CODEC_TWO_BIT
#define MV_CODEC_TWO_BIT
namespace mv::codec {
namespace {

constexpr size_t kTwoBitValues = 16;

/// The shift of each value's two bits in its little-endian word.
struct TwoBitShifts {
  constexpr TwoBitShifts() : of() {
    for (uint32_t i = 0; i < kTwoBitValues; ++i) of[i] = 8 * (i / 4) + 6 - 2 * (i % 4);
  }
  alignas(64) uint32_t of[kTwoBitValues];
};
constexpr TwoBitShifts kTwoBitShifts;

}  // namespace
}  // namespace mv::codec
#endif

HWY_BEFORE_NAMESPACE();
namespace mv::codec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using math::HWY_NAMESPACE::load;
using math::HWY_NAMESPACE::store;

void encode_two_bit(const float* gradient, float* residual, size_t words, std::byte* out, float threshold) {
  const hn::CappedTag<float, kTwoBitValues> tag;
  const hn::RebindToUnsigned<decltype(tag)> bits;
  const size_t lanes = hn::Lanes(tag);
  const auto positive = hn::Set(tag, threshold), negative = hn::Set(tag, -threshold);
  for (size_t word = 0; word < words; ++word, gradient += kTwoBitValues, residual += kTwoBitValues) {
    auto codes = hn::Zero(bits);
    for (size_t i = 0; i < kTwoBitValues; i += lanes) {
      const auto total = hn::Add(load(tag, residual + i), load(tag, gradient + i));
      const auto above = hn::Ge(total, positive), below = hn::Le(total, negative);
      const auto sent = hn::IfThenElse(above, positive, hn::IfThenElseZero(below, negative));
      store(hn::Sub(total, sent), tag, residual + i);
      const auto code = hn::IfThenElse(hn::RebindMask(bits, above), hn::Set(bits, 3),
                                       hn::IfThenElseZero(hn::RebindMask(bits, below), hn::Set(bits, 2)));
      codes = hn::Or(codes, hn::Shl(code, load(bits, kTwoBitShifts.of + i)));
    }
    const uint32_t all = hn::GetLane(hn::SumOfLanes(bits, codes));
    std::memcpy(out + word * kWordBytes, &all, kWordBytes);
  }
}

template <bool kAdd>
HWY_INLINE void decode_words_of_two_bit(const std::byte* encoded, float* values, size_t words, float threshold) {
  const hn::CappedTag<float, kTwoBitValues> tag;
  const hn::RebindToUnsigned<decltype(tag)> bits;
  const size_t lanes = hn::Lanes(tag);
  const auto size = hn::BitCast(bits, hn::Set(tag, threshold));
  for (size_t word = 0; word < words; ++word, values += kTwoBitValues) {
    uint32_t all;
    std::memcpy(&all, encoded + word * kWordBytes, kWordBytes);
    for (size_t i = 0; i < kTwoBitValues; i += lanes) {
      const auto code = hn::Shr(hn::Set(bits, all), load(bits, kTwoBitShifts.of + i));
      const auto high = hn::Ne(hn::And(code, hn::Set(bits, 2)), hn::Zero(bits));
      const auto sign = hn::ShiftLeft<31>(hn::AndNot(code, hn::Set(bits, 1)));
      const auto sent = hn::BitCast(tag, hn::IfThenElseZero(high, hn::Or(size, sign)));
      store(kAdd ? hn::Add(load(tag, values + i), sent) : sent, tag, values + i);
    }
  }
}

void decode_two_bit(const std::byte* encoded, float* values, size_t words, float threshold) {
  decode_words_of_two_bit<false>(encoded, values, words, threshold);
}
void decode_add_two_bit(const std::byte* encoded, float* values, size_t words, float threshold) {
  decode_words_of_two_bit<true>(encoded, values, words, threshold);
}

}  // namespace HWY_NAMESPACE
}  // namespace mv::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::codec {
namespace {

HWY_EXPORT(encode_two_bit);
HWY_EXPORT(decode_two_bit);
HWY_EXPORT(decode_add_two_bit);

class TwoBit final : public Codec {
 public:
  explicit TwoBit(const Spec& spec) : Codec(spec), threshold_(static_cast<float>(spec.parameters[0])) {}
  size_t encoded_bytes(size_t count) const override { return kWordBytes * words_of<kTwoBitValues>(count); }
  void encode(const float* gradient, float* residual, size_t count, std::byte* out) const override {
    encode_words<kTwoBitValues>(gradient, residual, count, out, [this](auto... args) {
      HWY_DYNAMIC_DISPATCH(encode_two_bit)(args..., threshold_);
    });
  }
  void decode(const std::byte* encoded, float* values, size_t count) const override {
    decode_words<kTwoBitValues>(encoded, values, count, [this](auto... args) {
      HWY_DYNAMIC_DISPATCH(decode_two_bit)(args..., threshold_);
    });
  }
  void decode_add(const std::byte* encoded, float* values, size_t count) const override {
    decode_words<kTwoBitValues>(encoded, values, count, [this](auto... args) {
      HWY_DYNAMIC_DISPATCH(decode_add_two_bit)(args..., threshold_);
    });
  }

 private:
  const float threshold_;
};

}  // namespace

const Kind kTwoBit = {
    "2bit",
    {{"threshold", 0.5, kLeastStep, kLargest, false, "values whose magnitude reaches it are sent as +- this"}},
    [](const Spec& spec) -> std::unique_ptr<Codec> { return std::make_unique<TwoBit>(spec); }};

}  // namespace mv::codec
#endif  // HWY_ONCE
