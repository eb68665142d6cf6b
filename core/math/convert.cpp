// Compiled once for every instruction set: foreach_target.h includes this file again and again with another HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/convert.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cassert>
#include <cstring>

#include "math/convert.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// All four work on the bits, as 32-bit lanes. Where a float's arithmetic helps (it rounds a subnormal, or normalizes one),
// the operands are normal and the result is, so that flush-to-zero modes of the caller change nothing.
using Bits = hn::ScalableTag<uint32_t>;
using Floats = hn::RebindToFloat<Bits>;
using Halves = hn::Rebind<uint16_t, Bits>;
using BitsV = hn::Vec<Bits>;

struct F16ToF32 {
  HWY_INLINE BitsV operator()(Bits tag, BitsV half) const {
    const Floats floats;
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(tag, 0x8000u)));
    const auto rest = hn::ShiftLeft<13>(hn::And(half, hn::Set(tag, 0x7fffu)));
    const auto exponent = hn::And(rest, hn::Set(tag, 0x7c00u << 13));
    const auto normal = hn::Add(rest, hn::Set(tag, (127u - 15u) << 23));
    const auto special = hn::Add(rest, hn::Set(tag, (255u - 31u) << 23));
    const auto quiet = hn::Or(special, hn::Set(tag, 0x00400000u));
    // A subnormal is its fraction beside an exponent of 2^-14, less that 2^-14.
    const auto above = hn::BitCast(floats, hn::Add(rest, hn::Set(tag, 113u << 23)));
    const auto subnormal = hn::BitCast(tag, hn::Sub(above, hn::BitCast(floats, hn::Set(tag, 113u << 23))));
    auto result = hn::IfThenElse(hn::Eq(exponent, hn::Zero(tag)), subnormal, normal);
    result = hn::IfThenElse(hn::Eq(exponent, hn::Set(tag, 0x7c00u << 13)), special, result);
    result = hn::IfThenElse(hn::Gt(rest, hn::Set(tag, 0x7c00u << 13)), quiet, result);
    return hn::Or(result, sign);
  }
};

struct Bf16ToF32 {
  HWY_INLINE BitsV operator()(Bits tag, BitsV half) const {
    const auto bits = hn::ShiftLeft<16>(half);
    const auto is_nan = hn::Gt(hn::And(bits, hn::Set(tag, 0x7fffffffu)), hn::Set(tag, 0x7f800000u));
    return hn::IfThenElse(is_nan, hn::Or(bits, hn::Set(tag, 0x00400000u)), bits);
  }
};

struct F32ToF16 {
  HWY_INLINE BitsV operator()(Bits tag, BitsV bits) const {
    const Floats floats;
    const auto size = hn::And(bits, hn::Set(tag, 0x7fffffffu));
    const auto sign = hn::ShiftRight<16>(hn::Xor(bits, size));
    const auto odd = hn::And(hn::ShiftRight<13>(size), hn::Set(tag, 1u));
    // A carry out of the fraction is right as it is: it raises the exponent, up to that of infinity.
    const auto rounded = hn::Add(hn::Add(size, hn::Set(tag, (15u << 23) - (127u << 23) + 0xfffu)), odd);
    const auto normal = hn::ShiftRight<13>(rounded);
    // Added to 1/2, whose last place is a subnormal's, the adder rounds to it. Below 2^-25 all is zero, f32's subnormals too.
    const auto half = hn::Set(floats, 0.5f);
    const auto sum = hn::Add(hn::BitCast(floats, size), half);
    const auto subnormal = hn::Sub(hn::BitCast(tag, sum), hn::BitCast(tag, half));
    const auto nan = hn::Or(hn::And(hn::ShiftRight<13>(size), hn::Set(tag, 0x3ffu)), hn::Set(tag, 0x7e00u));
    auto result = hn::IfThenElse(hn::Lt(size, hn::Set(tag, 113u << 23)), subnormal, normal);
    result = hn::IfThenElse(hn::Gt(size, hn::Set(tag, (143u << 23) - 1)), hn::Set(tag, 0x7c00u), result);
    result = hn::IfThenElse(hn::Gt(size, hn::Set(tag, 0x7f800000u)), nan, result);
    return hn::Or(result, sign);
  }
};

struct F32ToBf16 {
  HWY_INLINE BitsV operator()(Bits tag, BitsV bits) const {
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(tag, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(tag, 0x7fffu)), odd));
    const auto nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(tag, 0x40u));
    const auto is_nan = hn::Gt(hn::And(bits, hn::Set(tag, 0x7fffffffu)), hn::Set(tag, 0x7f800000u));
    return hn::IfThenElse(is_nan, nan, rounded);
  }
};

template <typename Op>
HWY_INLINE void widen_range(std::byte* dst, const std::byte* src, size_t count) {
  const Bits tag;
  const Halves halves;
  const size_t lanes = hn::Lanes(tag);
  const Op op;
  const auto* from = reinterpret_cast<const uint16_t*>(src);
  auto* to = reinterpret_cast<uint32_t*>(dst);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(op(tag, hn::PromoteTo(tag, hn::LoadU(halves, from + i))), tag, to + i);
  if (i == count) return;
  uint16_t in[hn::MaxLanes(Bits())] = {};
  uint32_t out[hn::MaxLanes(Bits())];
  std::memcpy(in, src + i * sizeof(uint16_t), (count - i) * sizeof(uint16_t));
  hn::StoreU(op(tag, hn::PromoteTo(tag, hn::LoadU(halves, in))), tag, out);
  std::memcpy(dst + i * sizeof(uint32_t), out, (count - i) * sizeof(uint32_t));
}

template <typename Op>
HWY_INLINE void narrow_range(std::byte* dst, const std::byte* src, size_t count) {
  const Bits tag;
  const Halves halves;
  const hn::RebindToSigned<Bits> narrowing;  // results are below 2^16, where saturation never begins
  const size_t lanes = hn::Lanes(tag);
  const Op op;
  const auto* from = reinterpret_cast<const uint32_t*>(src);
  auto* to = reinterpret_cast<uint16_t*>(dst);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto result = hn::BitCast(narrowing, op(tag, hn::LoadU(tag, from + i)));
    hn::StoreU(hn::DemoteTo(halves, result), halves, to + i);
  }
  if (i == count) return;
  uint32_t in[hn::MaxLanes(Bits())] = {};
  uint16_t out[hn::MaxLanes(Bits())];
  std::memcpy(in, src + i * sizeof(uint32_t), (count - i) * sizeof(uint32_t));
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(narrowing, op(tag, hn::LoadU(tag, in)))), halves, out);
  std::memcpy(dst + i * sizeof(uint16_t), out, (count - i) * sizeof(uint16_t));
}

void widen_f16(std::byte* dst, const std::byte* src, size_t count) { widen_range<F16ToF32>(dst, src, count); }
void widen_bf16(std::byte* dst, const std::byte* src, size_t count) { widen_range<Bf16ToF32>(dst, src, count); }
void narrow_f16(std::byte* dst, const std::byte* src, size_t count) { narrow_range<F32ToF16>(dst, src, count); }
void narrow_bf16(std::byte* dst, const std::byte* src, size_t count) { narrow_range<F32ToBf16>(dst, src, count); }

}  // namespace HWY_NAMESPACE
}  // namespace mv::math
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
namespace {

HWY_EXPORT(widen_f16);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(narrow_f16);
HWY_EXPORT(narrow_bf16);

}  // namespace

void widen_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept {
  assert(dtype == MV_F16 || dtype == MV_BF16);
  if (dtype == MV_F16) {
    HWY_DYNAMIC_DISPATCH(widen_f16)(dst, src, count);
  } else {
    HWY_DYNAMIC_DISPATCH(widen_bf16)(dst, src, count);
  }
}

void narrow_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept {
  assert(dtype == MV_F16 || dtype == MV_BF16);
  if (dtype == MV_F16) {
    HWY_DYNAMIC_DISPATCH(narrow_f16)(dst, src, count);
  } else {
    HWY_DYNAMIC_DISPATCH(narrow_bf16)(dst, src, count);
  }
}

void f16_to_f32(std::span<float> dst, std::span<const uint16_t> src) noexcept {
  assert(dst.size() == src.size());
  widen_bytes(MV_F16, std::as_writable_bytes(dst).data(), std::as_bytes(src).data(), src.size());
}

void bf16_to_f32(std::span<float> dst, std::span<const uint16_t> src) noexcept {
  assert(dst.size() == src.size());
  widen_bytes(MV_BF16, std::as_writable_bytes(dst).data(), std::as_bytes(src).data(), src.size());
}

void f32_to_f16(std::span<uint16_t> dst, std::span<const float> src) noexcept {
  assert(dst.size() == src.size());
  narrow_bytes(MV_F16, std::as_writable_bytes(dst).data(), std::as_bytes(src).data(), src.size());
}

void f32_to_bf16(std::span<uint16_t> dst, std::span<const float> src) noexcept {
  assert(dst.size() == src.size());
  narrow_bytes(MV_BF16, std::as_writable_bytes(dst).data(), std::as_bytes(src).data(), src.size());
}

}  // namespace mv::math
#endif  // HWY_ONCE
