// MXNet's 1bit codec: sends scale (1 in MXNet) for values above the threshold, -scale for all others, with 32 values in
// a 32-bit word. Value i is in byte i / 8, the first in the highest bit. Its bit is set above the threshold. A partial
// last word is padded with zeros. Compiled once per instruction set, like core/math.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/one_bit.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "codec/kind.hpp"
#include "codec/words.hpp"
#include "math/lanes-inl.hpp"

#ifndef MV_CODEC_ONE_BIT
#define MV_CODEC_ONE_BIT
namespace mv::codec {
namespace {

constexpr size_t kOneBitValues = 32;

/// The bit of each value in its little-endian word.
struct OneBits {
  constexpr OneBits() : of() {
    for (uint32_t i = 0; i < kOneBitValues; ++i) of[i] = UINT32_C(1) << (8 * (i / 8) + 7 - i % 8);
  }
  alignas(64) uint32_t of[kOneBitValues];
};
constexpr OneBits kOneBits;

}  // namespace
}  // namespace mv::codec
#endif

HWY_BEFORE_NAMESPACE();
namespace mv::codec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using math::HWY_NAMESPACE::load;
using math::HWY_NAMESPACE::store;

void encode_one_bit(const float* gradient, float* residual, size_t words, std::byte* out, float threshold,
                    float scale) {
  const hn::CappedTag<float, kOneBitValues> tag;
  const hn::RebindToUnsigned<decltype(tag)> bits;
  const size_t lanes = hn::Lanes(tag);
  const auto limit = hn::Set(tag, threshold), positive = hn::Set(tag, scale), negative = hn::Set(tag, -scale);
  for (size_t word = 0; word < words; ++word, gradient += kOneBitValues, residual += kOneBitValues) {
    auto codes = hn::Zero(bits);
    for (size_t i = 0; i < kOneBitValues; i += lanes) {
      const auto total = hn::Add(load(tag, residual + i), load(tag, gradient + i));
      const auto above = hn::Gt(total, limit);
      store(hn::Sub(total, hn::IfThenElse(above, positive, negative)), tag, residual + i);
      codes = hn::Or(codes, hn::IfThenElseZero(hn::RebindMask(bits, above), load(bits, kOneBits.of + i)));
    }
    const uint32_t all = hn::GetLane(hn::SumOfLanes(bits, codes));
    std::memcpy(out + word * kWordBytes, &all, kWordBytes);
  }
}

template <bool kAdd>
HWY_INLINE void decode_words_of_one_bit(const std::byte* encoded, float* values, size_t words, float scale) {
  const hn::CappedTag<float, kOneBitValues> tag;
  const hn::RebindToUnsigned<decltype(tag)> bits;
  const size_t lanes = hn::Lanes(tag);
  const auto positive = hn::Set(tag, scale), negative = hn::Set(tag, -scale);
  for (size_t word = 0; word < words; ++word, values += kOneBitValues) {
    uint32_t all;
    std::memcpy(&all, encoded + word * kWordBytes, kWordBytes);
    for (size_t i = 0; i < kOneBitValues; i += lanes) {
      const auto bit = hn::And(hn::Set(bits, all), load(bits, kOneBits.of + i));
      const auto is_set = hn::RebindMask(tag, hn::Ne(bit, hn::Zero(bits)));
      const auto sent = hn::IfThenElse(is_set, positive, negative);
      store(kAdd ? hn::Add(load(tag, values + i), sent) : sent, tag, values + i);
    }
  }
}

void decode_one_bit(const std::byte* encoded, float* values, size_t words, float scale) {
  decode_words_of_one_bit<false>(encoded, values, words, scale);
}
void decode_add_one_bit(const std::byte* encoded, float* values, size_t words, float scale) {
  decode_words_of_one_bit<true>(encoded, values, words, scale);
}

}  // namespace HWY_NAMESPACE
}  // namespace mv::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::codec {
namespace {

HWY_EXPORT(encode_one_bit);
HWY_EXPORT(decode_one_bit);
HWY_EXPORT(decode_add_one_bit);

class OneBit final : public Codec {
 public:
  explicit OneBit(const Spec& spec)
      : Codec(spec),
        threshold_(static_cast<float>(spec.parameters[0])),
        scale_(static_cast<float>(spec.parameters[1])) {}
  size_t encoded_bytes(size_t count) const override { return kWordBytes * words_of<kOneBitValues>(count); }
  void encode(const float* gradient, float* residual, size_t count, std::byte* out) const override {
    encode_words<kOneBitValues>(gradient, residual, count, out, [this](auto... args) {
      HWY_DYNAMIC_DISPATCH(encode_one_bit)(args..., threshold_, scale_);
    });
    clear_beyond(out, count);
  }
  void decode(const std::byte* encoded, float* values, size_t count) const override {
    decode_words<kOneBitValues>(encoded, values, count, [this](auto... args) {
      HWY_DYNAMIC_DISPATCH(decode_one_bit)(args..., scale_);
    });
  }
  void decode_add(const std::byte* encoded, float* values, size_t count) const override {
    decode_words<kOneBitValues>(encoded, values, count, [this](auto... args) {
      HWY_DYNAMIC_DISPATCH(decode_add_one_bit)(args..., scale_);
    });
  }

 private:
  /// Clears the padding bits: with a negative threshold, the zeros after the last values are above it.
  static void clear_beyond(std::byte* out, size_t count) {
    const size_t rest = count % kOneBitValues;
    if (rest == 0) return;
    uint32_t last, mask = 0;
    for (size_t i = 0; i < rest; ++i) mask |= kOneBits.of[i];
    std::byte* const at = out + count / kOneBitValues * kWordBytes;
    std::memcpy(&last, at, kWordBytes);
    last &= mask;
    std::memcpy(at, &last, kWordBytes);
  }

  const float threshold_, scale_;
};

}  // namespace

const Kind kOneBit = {
    "1bit",
    {{"threshold", 0.5, -kLargest, kLargest, false, "values above it are sent as the scale, others as its negative"},
     {"scale", 1, kLeastStep, kLargest, false, "the magnitude that is sent"}},
    [](const Spec& spec) -> std::unique_ptr<Codec> { return std::make_unique<OneBit>(spec); }};

}  // namespace mv::codec
#endif  // HWY_ONCE
