// The fp16 and bf16 codecs: each value as an IEEE binary16 or as a bfloat16, the upper half of a float. Values are
// rounded to nearest and clamped to the largest finite half, 65504 for fp16; the rest stays in the residual. Compiled
// once per instruction set, like core/math.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/half.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "codec/kind.hpp"
#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::codec {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using math::HWY_NAMESPACE::load;
using math::HWY_NAMESPACE::narrow;
using math::HWY_NAMESPACE::over_lanes;
using math::HWY_NAMESPACE::store;
using math::HWY_NAMESPACE::widen;

/// `largest` is the largest finite value of kHalf.
template <mv_dtype kHalf>
HWY_INLINE void encode_as(float largest, const float* gradient, float* residual, size_t count, std::byte* out) {
  auto* const halves = reinterpret_cast<uint16_t*>(out);
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto total = hn::Add(load(tag, residual + i), load(tag, gradient + i));
    const auto most = hn::Set(tag, largest);
    const auto fits = hn::IfThenElse(hn::Gt(hn::Abs(total), most), hn::CopySign(most, total), total);  // a NaN stays a NaN
    narrow<kHalf>(tag, fits, halves + i);
    store(hn::Sub(total, widen<kHalf>(tag, halves + i)), tag, residual + i);
  });
}

template <mv_dtype kHalf>
HWY_INLINE void decode_add_as(const std::byte* encoded, float* values, size_t count) {
  const auto* const halves = reinterpret_cast<const uint16_t*>(encoded);
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR {
    store(hn::Add(load(tag, values + i), widen<kHalf>(tag, halves + i)), tag, values + i);
  });
}

void encode_f16(const float* gradient, float* residual, size_t count, std::byte* out) {
  encode_as<MV_F16>(65504.0f, gradient, residual, count, out);
}
void encode_bf16(const float* gradient, float* residual, size_t count, std::byte* out) {
  encode_as<MV_BF16>(0x1.fep127f, gradient, residual, count, out);
}
void decode_add_f16(const std::byte* encoded, float* values, size_t count) { decode_add_as<MV_F16>(encoded, values, count); }
void decode_add_bf16(const std::byte* encoded, float* values, size_t count) { decode_add_as<MV_BF16>(encoded, values, count); }

}  // namespace HWY_NAMESPACE
}  // namespace mv::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "math/convert.hpp"

namespace mv::codec {
namespace {

HWY_EXPORT(encode_f16);
HWY_EXPORT(encode_bf16);
HWY_EXPORT(decode_add_f16);
HWY_EXPORT(decode_add_bf16);

template <mv_dtype kHalf>
class Half final : public Codec {
 public:
  using Codec::Codec;
  size_t encoded_bytes(size_t count) const override { return count * sizeof(uint16_t); }
  void encode(const float* gradient, float* residual, size_t count, std::byte* out) const override {
    if constexpr (kHalf == MV_F16) HWY_DYNAMIC_DISPATCH(encode_f16)(gradient, residual, count, out);
    else HWY_DYNAMIC_DISPATCH(encode_bf16)(gradient, residual, count, out);
  }
  void decode(const std::byte* encoded, float* values, size_t count) const override {
    math::widen_bytes(kHalf, reinterpret_cast<std::byte*>(values), encoded, count);
  }
  void decode_add(const std::byte* encoded, float* values, size_t count) const override {
    if constexpr (kHalf == MV_F16) HWY_DYNAMIC_DISPATCH(decode_add_f16)(encoded, values, count);
    else HWY_DYNAMIC_DISPATCH(decode_add_bf16)(encoded, values, count);
  }
  bool suits_values() const override { return true; }
};

template <mv_dtype kHalf>
std::unique_ptr<Codec> make_half(const Spec& spec) {
  return std::make_unique<Half<kHalf>>(spec);
}

}  // namespace

const Kind kHalf = {"fp16", {}, make_half<MV_F16>};
const Kind kBrainHalf = {"bf16", {}, make_half<MV_BF16>};

}  // namespace mv::codec
#endif  // HWY_ONCE
