// fp16: each value as an IEEE binary16, to nearest, at most 65504 of it at a time. Compiled once for every instruction set,
// as core/math.
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
using math::HWY_NAMESPACE::narrow_f16;
using math::HWY_NAMESPACE::over_lanes;
using math::HWY_NAMESPACE::store;
using math::HWY_NAMESPACE::widen;
using math::HWY_NAMESPACE::widen_f16;

void encode_half(const float* gradient, float* residual, size_t count, std::byte* out) {
  auto* const halves = reinterpret_cast<uint16_t*>(out);
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto total = hn::Add(load(tag, residual + i), load(tag, gradient + i));
    const auto most = hn::Set(tag, 65504.0f);
    const auto fits = hn::IfThenElse(hn::Gt(hn::Abs(total), most), hn::CopySign(most, total), total);  // a NaN stays one
    const auto half = narrow_f16(tag, fits);
    store(half, hn::Rebind<uint16_t, decltype(tag)>(), halves + i);
    store(hn::Sub(total, widen_f16(tag, half)), tag, residual + i);
  });
}

void decode_add_half(const std::byte* encoded, float* values, size_t count) {
  const auto* const halves = reinterpret_cast<const uint16_t*>(encoded);
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR {
    store(hn::Add(load(tag, values + i), widen<MV_F16>(tag, halves + i)), tag, values + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace mv::codec
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "math/convert.hpp"

namespace mv::codec {
namespace {

HWY_EXPORT(encode_half);
HWY_EXPORT(decode_add_half);

class Half final : public Codec {
 public:
  using Codec::Codec;
  size_t encoded_bytes(size_t count) const override { return count * sizeof(uint16_t); }
  void encode(const float* gradient, float* residual, size_t count, std::byte* out) const override {
    HWY_DYNAMIC_DISPATCH(encode_half)(gradient, residual, count, out);
  }
  void decode(const std::byte* encoded, float* values, size_t count) const override {
    math::widen_bytes(MV_F16, reinterpret_cast<std::byte*>(values), encoded, count);
  }
  void decode_add(const std::byte* encoded, float* values, size_t count) const override {
    HWY_DYNAMIC_DISPATCH(decode_add_half)(encoded, values, count);
  }
  bool suits_values() const override { return true; }
};

}  // namespace

const Kind kHalf = {
    "fp16", {}, [](const Spec& spec) -> std::unique_ptr<Codec> { return std::make_unique<Half>(spec); }};

}  // namespace mv::codec
#endif  // HWY_ONCE
