// The int8 codec: for each block of values a float scale, and for each value an integer from -127 to 127. All scales
// come first, then all integers. A block's scale is its greatest absolute value / 127. A NaN is sent as 0, and stays in the
// residual. Compiled once per instruction set, like core/math.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/int8.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <limits>

#include "codec/kind.hpp"
#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::codec::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using math::HWY_NAMESPACE::load;
using math::HWY_NAMESPACE::over_lanes;
using math::HWY_NAMESPACE::store;

/// The value, or 0 for NaN. The results of maxima and conversions of NaN depend on the instruction set.
template <class D>
HWY_INLINE hn::Vec<D> number_or_zero(hn::Vec<D> value) {
  return hn::IfThenElseZero(hn::Eq(value, value), value);
}

/// Encodes one block and returns its scale.
float encode_int8(const float* gradient, float* residual, size_t count, int8_t* out) {
  float greatest = 0;
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto total = hn::Add(load(tag, residual + i), load(tag, gradient + i));
    store(total, tag, residual + i);
    greatest = std::max(greatest, hn::GetLane(hn::MaxOfLanes(tag, hn::Abs(number_or_zero<decltype(tag)>(total)))));
  });
  // A block of tiny values stays in the residual: its scale would be subnormal or zero.
  const bool any = greatest >= 128 * std::numeric_limits<float>::min();
  const float scale = any ? greatest / 127 : 0, inverse = any ? 127 / greatest : 0;
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(tag)> numbers;
    const auto total = load(tag, residual + i);
    auto number = hn::NearestInt(number_or_zero<decltype(tag)>(hn::Mul(total, hn::Set(tag, inverse))));
    number = hn::Max(hn::Min(number, hn::Set(numbers, 127)), hn::Set(numbers, -127));
    store(hn::Sub(total, hn::Mul(hn::ConvertTo(tag, number), hn::Set(tag, scale))), tag, residual + i);
    const hn::Rebind<int8_t, decltype(tag)> bytes;
    store(hn::DemoteTo(bytes, number), bytes, out + i);
  });
  return scale;
}

template <bool kAdd>
HWY_INLINE void decode_block(const int8_t* encoded, float scale, float* values, size_t count) {
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(tag)> numbers;
    const auto number = hn::PromoteTo(numbers, load(hn::Rebind<int8_t, decltype(tag)>(), encoded + i));
    const auto sent = hn::Mul(hn::ConvertTo(tag, number), hn::Set(tag, scale));
    store(kAdd ? hn::Add(load(tag, values + i), sent) : sent, tag, values + i);
  });
}

void decode_int8(bool adds, const int8_t* encoded, float scale, float* values, size_t count) {
  adds ? decode_block<true>(encoded, scale, values, count) : decode_block<false>(encoded, scale, values, count);
}

}  // namespace mv::codec::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::codec {
HWY_EXPORT(encode_int8);
HWY_EXPORT(decode_int8);

namespace {

class Int8 final : public Codec {
 public:
  explicit Int8(const Spec& spec) : Codec(spec), block_(static_cast<size_t>(spec.parameters[0])) {}
  size_t encoded_bytes(size_t count) const override { return blocks_of(count) * sizeof(float) + count; }
  void encode(const float* gradient, float* residual, size_t count, std::byte* out) const override {
    auto* const numbers = reinterpret_cast<int8_t*>(out + blocks_of(count) * sizeof(float));
    for (size_t first = 0; first < count; first += block_, out += sizeof(float)) {
      const size_t some = std::min(block_, count - first);
      const float scale =
          HWY_DYNAMIC_DISPATCH(encode_int8)(gradient + first, residual + first, some, numbers + first);
      std::memcpy(out, &scale, sizeof scale);
    }
  }
  bool suits_values() const override { return true; }

 private:
  size_t blocks_of(size_t count) const { return count / block_ + (count % block_ != 0 ? 1 : 0); }

  void unpack(const std::byte* encoded, float* values, size_t count, bool adds) const override {
    const auto* const numbers = reinterpret_cast<const int8_t*>(encoded + blocks_of(count) * sizeof(float));
    for (size_t first = 0; first < count; first += block_, encoded += sizeof(float))
      HWY_DYNAMIC_DISPATCH(decode_int8)(adds, numbers + first, math::element<float>(encoded, 0), values + first, std::min(block_, count - first));
  }

  const size_t block_;
};

}  // namespace

const Kind kInt8 = {"int8",
                    {{"block", 256, 16, 65536, true, "values that share a scale"}},
                    [](const Spec& spec) -> std::unique_ptr<Codec> { return std::make_unique<Int8>(spec); }};

}  // namespace mv::codec
#endif  // HWY_ONCE
