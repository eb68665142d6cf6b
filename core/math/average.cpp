// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/average.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <limits>

#include "math/average.hpp"
#include "math/lanes-inl.hpp"
#include "math/squares-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math {
namespace HWY_NAMESPACE {

// Both kinds of mean, one lambda for each. It returns the difference of the two models at that element.

template <typename T>
HWY_INLINE double average_floats(std::byte* dst_bytes, const std::byte* src_bytes, size_t count, double factor) {
  auto* dst = reinterpret_cast<T*>(dst_bytes);
  const auto* src = reinterpret_cast<const T*>(src_bytes);
  const T theirs = static_cast<T>(factor), own = static_cast<T>(1 - factor);
  return sum_of_squares<T>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto peer = load(tag, src + i), mine = load(tag, dst + i);
    store(hn::Add(hn::Mul(hn::Set(tag, theirs), peer), hn::Mul(hn::Set(tag, own), mine)), tag, dst + i);
    return hn::Sub(peer, mine);
  });
}

template <mv_dtype kHalf>
HWY_INLINE double average_halves(std::byte* dst_bytes, const std::byte* src_bytes, size_t count, double factor) {
  auto* dst = reinterpret_cast<uint16_t*>(dst_bytes);
  const auto* src = reinterpret_cast<const uint16_t*>(src_bytes);
  const float theirs = static_cast<float>(factor), own = static_cast<float>(1 - factor);
  return sum_of_squares<float>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto peer = widen<kHalf>(tag, src + i), mine = widen<kHalf>(tag, dst + i);
    narrow<kHalf>(tag, hn::Add(hn::Mul(hn::Set(tag, theirs), peer), hn::Mul(hn::Set(tag, own), mine)), dst + i);
    return hn::Sub(peer, mine);
  });
}

template <typename T>
HWY_INLINE double approach_floats(std::byte* dst_bytes, const std::byte* src_bytes, const std::byte* base_bytes, size_t count, double factor) {
  auto* dst = reinterpret_cast<T*>(dst_bytes);
  const auto* src = reinterpret_cast<const T*>(src_bytes);
  const auto* base = reinterpret_cast<const T*>(base_bytes);
  const T part = static_cast<T>(factor);
  return sum_of_squares<T>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto peer = load(tag, src + i), from = load(tag, base + i), mine = load(tag, dst + i), share = hn::Set(tag, part);
    const auto apart = hn::Sub(peer, from);
    // The difference of two finite values may overflow, although every value between them is finite. Then half the step
    // is made twice.
    const auto half = hn::Set(tag, static_cast<T>(0.5));
    const auto half_way = hn::Mul(share, hn::Sub(hn::Mul(peer, half), hn::Mul(from, half)));
    const auto near = hn::Add(mine, hn::Mul(share, apart)), far = hn::Add(hn::Add(mine, half_way), half_way);
    store(hn::IfThenElse(hn::IsInf(apart), far, near), tag, dst + i);
    return apart;
  });
}

template <mv_dtype kHalf>
HWY_INLINE double approach_halves(std::byte* dst_bytes, const std::byte* src_bytes, const std::byte* base_bytes, size_t count, double factor) {
  auto* dst = reinterpret_cast<uint16_t*>(dst_bytes);
  const auto* src = reinterpret_cast<const uint16_t*>(src_bytes);
  const auto* base = reinterpret_cast<const uint16_t*>(base_bytes);
  const auto part = static_cast<float>(factor);
  return sum_of_squares<float>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto apart = hn::Sub(widen<kHalf>(tag, src + i), widen<kHalf>(tag, base + i));
    narrow<kHalf>(tag, hn::Add(widen<kHalf>(tag, dst + i), hn::Mul(hn::Set(tag, part), apart)), dst + i);
    return apart;
  });
}

double average_f32(std::byte* dst, const std::byte* src, size_t count, double factor) { return average_floats<float>(dst, src, count, factor); }
double average_f64(std::byte* dst, const std::byte* src, size_t count, double factor) { return average_floats<double>(dst, src, count, factor); }
double average_f16(std::byte* dst, const std::byte* src, size_t count, double factor) { return average_halves<MV_F16>(dst, src, count, factor); }
double average_bf16(std::byte* dst, const std::byte* src, size_t count, double factor) { return average_halves<MV_BF16>(dst, src, count, factor); }

double approach_f32(std::byte* dst, const std::byte* src, const std::byte* base, size_t count, double factor) {
  return approach_floats<float>(dst, src, base, count, factor);
}
double approach_f64(std::byte* dst, const std::byte* src, const std::byte* base, size_t count, double factor) {
  return approach_floats<double>(dst, src, base, count, factor);
}
double approach_f16(std::byte* dst, const std::byte* src, const std::byte* base, size_t count, double factor) {
  return approach_halves<MV_F16>(dst, src, base, count, factor);
}
double approach_bf16(std::byte* dst, const std::byte* src, const std::byte* base, size_t count, double factor) {
  return approach_halves<MV_BF16>(dst, src, base, count, factor);
}

}  // namespace HWY_NAMESPACE
}  // namespace mv::math
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
namespace {

HWY_EXPORT(average_f32);
HWY_EXPORT(average_f64);
HWY_EXPORT(average_f16);
HWY_EXPORT(average_bf16);
HWY_EXPORT(approach_f32);
HWY_EXPORT(approach_f64);
HWY_EXPORT(approach_f16);
HWY_EXPORT(approach_bf16);

template <typename T>
T element(const std::byte* from, size_t i) {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}

/// The T nearest to a double.
template <typename T>
T rounded(double value) {
  constexpr T kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
  const double whole = std::nearbyint(value);
  return whole <= static_cast<double>(kLeast) ? kLeast : whole >= static_cast<double>(kMost) ? kMost : static_cast<T>(whole);
}

/// Integers are counters among the parameters: few, and not worth vector code. Equal ones are kept, including 64-bit
/// numbers that a double cannot represent.
template <typename T>
double average_integers(std::byte* dst, const std::byte* src, size_t count, double factor) {
  double squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const T own = element<T>(dst, i), theirs = element<T>(src, i);
    if (own == theirs) continue;
    // The mean lies between the two, except for the rounding of numbers beyond 2^53.
    const T mean = std::clamp(rounded<T>(factor * static_cast<double>(theirs) + (1 - factor) * static_cast<double>(own)), std::min(own, theirs),
                              std::max(own, theirs));
    std::memcpy(dst + i * sizeof(T), &mean, sizeof(T));
    const double apart = static_cast<double>(theirs) - static_cast<double>(own);
    squares += apart * apart;
  }
  return squares;
}

/// The step is rounded towards zero on both sides, so one side gains exactly what the other loses.
template <typename T>
double approach_integers(std::byte* dst, const std::byte* src, const std::byte* base, size_t count, double factor) {
  double squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const double apart = static_cast<double>(element<T>(src, i)) - static_cast<double>(element<T>(base, i));
    if (apart == 0) continue;
    const T moved = rounded<T>(static_cast<double>(element<T>(dst, i)) + std::trunc(factor * apart));
    std::memcpy(dst + i * sizeof(T), &moved, sizeof(T));
    squares += apart * apart;
  }
  return squares;
}

}  // namespace

double average_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, double factor) noexcept {
  switch (dtype) {
    case MV_F32:
      return HWY_DYNAMIC_DISPATCH(average_f32)(dst, src, count, factor);
    case MV_F64:
      return HWY_DYNAMIC_DISPATCH(average_f64)(dst, src, count, factor);
    case MV_F16:
      return HWY_DYNAMIC_DISPATCH(average_f16)(dst, src, count, factor);
    case MV_BF16:
      return HWY_DYNAMIC_DISPATCH(average_bf16)(dst, src, count, factor);
    case MV_I32:
      return average_integers<int32_t>(dst, src, count, factor);
    case MV_I64:
      return average_integers<int64_t>(dst, src, count, factor);
    case MV_U8:
      return average_integers<uint8_t>(dst, src, count, factor);
    case MV_I8:
      return average_integers<int8_t>(dst, src, count, factor);
    default:
      assert(false);
      return 0;
  }
}

double approach_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, const std::byte* base, size_t count, double factor) noexcept {
  switch (dtype) {
    case MV_F32:
      return HWY_DYNAMIC_DISPATCH(approach_f32)(dst, src, base, count, factor);
    case MV_F64:
      return HWY_DYNAMIC_DISPATCH(approach_f64)(dst, src, base, count, factor);
    case MV_F16:
      return HWY_DYNAMIC_DISPATCH(approach_f16)(dst, src, base, count, factor);
    case MV_BF16:
      return HWY_DYNAMIC_DISPATCH(approach_bf16)(dst, src, base, count, factor);
    case MV_I32:
      return approach_integers<int32_t>(dst, src, base, count, factor);
    case MV_I64:
      return approach_integers<int64_t>(dst, src, base, count, factor);
    case MV_U8:
      return approach_integers<uint8_t>(dst, src, base, count, factor);
    case MV_I8:
      return approach_integers<int8_t>(dst, src, base, count, factor);
    default:
      assert(false);
      return 0;
  }
}

}  // namespace mv::math
#endif  // HWY_ONCE
