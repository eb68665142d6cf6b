// The fp16 and bf16 codecs: each value as an IEEE binary16 or as a bfloat16, the upper half of a float. Values are
// rounded to nearest and clamped to the largest finite half, 65504 for fp16; the rest stays in the residual. Compiled
// once per instruction set, like core/math.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/half.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "codec/kind.hpp"
#include "math/convert.hpp"
#include "math/kernels.hpp"
#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::codec::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using math::HWY_NAMESPACE::load;
using math::HWY_NAMESPACE::over_lanes;
using math::HWY_NAMESPACE::store;

/// `largest` is the largest finite value of T, a half.
template <typename T>
HWY_INLINE void encode_as(float largest, const float* gradient, float* residual, size_t count, std::byte* out) {
  auto* const halves = reinterpret_cast<T*>(out);
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto total = hn::Add(load(tag, residual + i), load(tag, gradient + i));
    const auto most = hn::Set(tag, largest);
    const auto fits = hn::IfThenElse(hn::Gt(hn::Abs(total), most), hn::CopySign(most, total), total);  // a NaN stays a NaN
    store(fits, tag, halves + i);
    store(hn::Sub(total, load(tag, halves + i)), tag, residual + i);
  });
}

void encode_half(mv_dtype dtype, const float* gradient, float* residual, size_t count, std::byte* out) {
  if (dtype == MV_F16) return encode_as<math::Half<MV_F16>>(65504.0f, gradient, residual, count, out);
  encode_as<math::Half<MV_BF16>>(0x1.fep127f, gradient, residual, count, out);
}

}  // namespace mv::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::codec {
HWY_EXPORT(encode_half);

namespace {

template <mv_dtype kHalf>
class Half final : public Codec {
 public:
  using Codec::Codec;
  size_t encoded_bytes(size_t count) const override { return count * sizeof(uint16_t); }
  void encode(const float* gradient, float* residual, size_t count, std::byte* out) const override {
    HWY_DYNAMIC_DISPATCH(encode_half)(kHalf, gradient, residual, count, out);
  }
  bool suits_values() const override { return true; }

 private:
  void unpack(const std::byte* encoded, float* values, size_t count, bool adds) const override {
    (adds ? math::add_bytes : math::widen_bytes)(kHalf, reinterpret_cast<std::byte*>(values), encoded, count);
  }
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
