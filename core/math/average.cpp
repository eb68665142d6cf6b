// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/average.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "math/average.hpp"
#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math::HWY_NAMESPACE {

// Both kinds of mean, one lambda for each. It returns the difference of the two models at that element.

template <typename T>
HWY_INLINE double average_floats(std::byte* dst_bytes, const std::byte* src_bytes, size_t count, double factor) {
  using F = Computed<T>;
  auto* dst = reinterpret_cast<T*>(dst_bytes);
  const auto* src = reinterpret_cast<const T*>(src_bytes);
  const F theirs = static_cast<F>(factor), own = static_cast<F>(1 - factor);
  return sum_of_squares<F>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto peer = load(tag, src + i), mine = load(tag, dst + i);
    store(hn::Add(hn::Mul(hn::Set(tag, theirs), peer), hn::Mul(hn::Set(tag, own), mine)), tag, dst + i);
    return hn::Sub(peer, mine);
  });
}

template <typename T>
HWY_INLINE double approach_floats(std::byte* dst_bytes, const std::byte* src_bytes, const std::byte* base_bytes, size_t count, double factor) {
  using F = Computed<T>;
  auto* dst = reinterpret_cast<T*>(dst_bytes);
  const auto* src = reinterpret_cast<const T*>(src_bytes);
  const auto* base = reinterpret_cast<const T*>(base_bytes);
  const F part = static_cast<F>(factor);
  return sum_of_squares<F>(count, [&](auto tag, size_t i) HWY_ATTR {
    const auto peer = load(tag, src + i), from = load(tag, base + i), mine = load(tag, dst + i), share = hn::Set(tag, part);
    const auto apart = hn::Sub(peer, from);
    auto moved = hn::Add(mine, hn::Mul(share, apart));
    // The difference of two finite values may overflow, although every value between them is finite. Then half the step
    // is made twice. Differences of f16 fit into a float.
    if constexpr (!std::is_same_v<T, Half<MV_F16>>) {
      const auto half = hn::Set(tag, static_cast<F>(0.5));
      const auto half_way = hn::Mul(share, hn::Sub(hn::Mul(peer, half), hn::Mul(from, half)));
      moved = hn::IfThenElse(hn::IsInf(apart), hn::Add(hn::Add(mine, half_way), half_way), moved);
    }
    store(moved, tag, dst + i);
    return apart;
  });
}

double average(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, double factor) {
  return with_floating(dtype, [&](auto type) HWY_ATTR { return average_floats<decltype(type)>(dst, src, count, factor); });
}
double approach(mv_dtype dtype, std::byte* dst, const std::byte* src, const std::byte* base, size_t count, double factor) {
  return with_floating(dtype, [&](auto type) HWY_ATTR { return approach_floats<decltype(type)>(dst, src, base, count, factor); });
}

}  // namespace mv::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
HWY_EXPORT(average);
HWY_EXPORT(approach);

namespace {

/// Integers are counters among the parameters: few, and not worth vector code. Equal ones are kept, including 64-bit
/// numbers that a double cannot represent.
template <typename T>
double average_integers(std::byte* dst, const std::byte* src, size_t count, double factor) {
  double squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const T own = element<T>(dst, i), theirs = element<T>(src, i);
    if (own == theirs) continue;
    // The mean lies between the two, except for the rounding of numbers beyond 2^53.
    const T mean = std::clamp(nearest<T>(factor * static_cast<double>(theirs) + (1 - factor) * static_cast<double>(own)), std::min(own, theirs),
                              std::max(own, theirs));
    set_element(dst, i, mean);
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
    const T moved = nearest<T>(static_cast<double>(element<T>(dst, i)) + std::trunc(factor * apart));
    set_element(dst, i, moved);
    squares += apart * apart;
  }
  return squares;
}

}  // namespace

double average_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, double factor) noexcept {
  if (is_floating(dtype)) return HWY_DYNAMIC_DISPATCH(average)(dtype, dst, src, count, factor);
  return with_integer(dtype, [&](auto type) { return average_integers<decltype(type)>(dst, src, count, factor); });
}

double approach_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, const std::byte* base, size_t count, double factor) noexcept {
  if (is_floating(dtype)) return HWY_DYNAMIC_DISPATCH(approach)(dtype, dst, src, base, count, factor);
  return with_integer(dtype, [&](auto type) { return approach_integers<decltype(type)>(dst, src, base, count, factor); });
}

}  // namespace mv::math
#endif  // HWY_ONCE
