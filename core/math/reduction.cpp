// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/reduction.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <type_traits>

#include "math/convert.hpp"
#include "math/kernels.hpp"
#include "math/lanes-inl.hpp"
#include "math/reduction.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math::HWY_NAMESPACE {

template <Reduction kReduction, class D>
HWY_INLINE hn::Vec<D> merge(D tag, hn::Vec<D> a, hn::Vec<D> b) {
  (void)tag;
  if constexpr (kReduction == Reduction::kProd) return hn::Mul(a, b);
  // The instruction sets' native minima treat NaNs differently, and so do Highway's comparisons of a value with itself.
  if constexpr (kReduction == Reduction::kMin) return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Lt(a, b)), a, b);
  if constexpr (kReduction == Reduction::kMax) return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Lt(b, a)), a, b);
  return hn::Add(a, b);
}

using Sources = std::span<const std::byte* const>;

/// `T` is the type of the elements.
template <Reduction kReduction, typename T>
struct Merge {
  T* dst;
  Sources sources;
  Computed<T> divisor;

  template <class D>
  HWY_INLINE hn::Vec<D> take(D tag, size_t source, size_t i) const {
    return load(tag, reinterpret_cast<const T*>(sources[source]) + i);
  }
  template <class D>
  HWY_INLINE void put(D tag, hn::Vec<D> value, size_t i) const {
    if constexpr (kReduction == Reduction::kAverage) value = hn::Div(value, hn::Set(tag, divisor));
    store(value, tag, dst + i);
  }
  template <class D>
  HWY_INLINE void one(D tag, size_t i) const {
    auto value = take(tag, 0, i);
    for (size_t source = 1; source < sources.size(); ++source) value = merge<kReduction>(tag, value, take(tag, source, i));
    put(tag, value, i);
  }
  /// Four vectors at a time: several loads are in flight, and each source's pointer is loaded once for all four.
  template <class D>
  HWY_INLINE void four(D tag, size_t i) const {
    const size_t lanes = hn::Lanes(tag);
    auto a = take(tag, 0, i), b = take(tag, 0, i + lanes), c = take(tag, 0, i + 2 * lanes), d = take(tag, 0, i + 3 * lanes);
    for (size_t source = 1; source < sources.size(); ++source) {
      a = merge<kReduction>(tag, a, take(tag, source, i));
      b = merge<kReduction>(tag, b, take(tag, source, i + lanes));
      c = merge<kReduction>(tag, c, take(tag, source, i + 2 * lanes));
      d = merge<kReduction>(tag, d, take(tag, source, i + 3 * lanes));
    }
    put(tag, a, i);
    put(tag, b, i + lanes);
    put(tag, c, i + 2 * lanes);
    put(tag, d, i + 3 * lanes);
  }
};

template <Reduction kReduction, typename T>
HWY_INLINE void merge_range(std::byte* dst, Sources sources, size_t count, uint64_t divisor) {
  using F = Computed<T>;
  const Merge<kReduction, T> work{reinterpret_cast<T*>(dst), sources, static_cast<F>(divisor)};
  const hn::ScalableTag<F> tag;
  const size_t lanes = hn::Lanes(tag);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) work.four(tag, i);
  over_tail(i, count, tag, [&](auto some, size_t at) HWY_ATTR { work.one(some, at); });
}

/// All reductions of floats, and sums of integers.
void merge_vectors(Reduction reduction, mv_dtype dtype, std::byte* dst, Sources sources, size_t count, uint64_t divisor) {
  with_element(dtype, [&](auto type) HWY_ATTR {
    using T = decltype(type);
    if constexpr (std::is_integral_v<T>) return merge_range<Reduction::kSum, T>(dst, sources, count, divisor);
    else switch (reduction) {
      case Reduction::kSum:
        return merge_range<Reduction::kSum, T>(dst, sources, count, divisor);
      case Reduction::kProd:
        return merge_range<Reduction::kProd, T>(dst, sources, count, divisor);
      case Reduction::kMin:
        return merge_range<Reduction::kMin, T>(dst, sources, count, divisor);
      case Reduction::kMax:
        return merge_range<Reduction::kMax, T>(dst, sources, count, divisor);
      case Reduction::kAverage:
        return merge_range<Reduction::kAverage, T>(dst, sources, count, divisor);
    }
  });
}

}  // namespace mv::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
HWY_EXPORT(merge_vectors);

namespace {

/// Products and extremes of integers, whose order does not matter. The compiler vectorizes the loop.
template <typename T, typename Merge>
void merge_integers(std::byte* dst, std::span<const std::byte* const> sources, size_t count, const Merge& merge) {
  constexpr size_t kPiece = 4096;  // fits into the L1 cache
  const auto in_place = std::ranges::find(sources, dst);
  const auto start = in_place != sources.end() ? in_place : sources.begin();
  for (size_t first = 0; first < count; first += kPiece) {
    const size_t some = std::min(kPiece, count - first), at = first * sizeof(T);
    std::byte* const to = dst + at;
    if (*start != dst) std::memcpy(to, *start + at, some * sizeof(T));
    for (auto source = sources.begin(); source != sources.end(); ++source) {
      if (source == start) continue;
      const std::byte* const from = *source + at;
      for (size_t i = 0; i < some; ++i) set_element(to, i, merge(element<T>(to, i), element<T>(from, i)));
    }
  }
}

template <typename T>
void merge_integers_by(Reduction reduction, std::byte* dst, std::span<const std::byte* const> sources, size_t count) {
  // Unsigned numbers wrap. Smaller ones would be promoted to int, which overflows.
  using Wrapping = std::conditional_t<sizeof(T) <= sizeof(uint32_t), uint32_t, uint64_t>;
  if (reduction == Reduction::kProd)
    return merge_integers<T>(dst, sources, count, [](T a, T b) { return static_cast<T>(static_cast<Wrapping>(a) * static_cast<Wrapping>(b)); });
  if (reduction == Reduction::kMin) return merge_integers<T>(dst, sources, count, [](T a, T b) { return std::min(a, b); });
  assert(reduction == Reduction::kMax);
  merge_integers<T>(dst, sources, count, [](T a, T b) { return std::max(a, b); });
}

template <typename T>
T neutral(Reduction reduction) noexcept {
  using Limits = std::numeric_limits<T>;
  switch (reduction) {
    case Reduction::kProd:
      return T{1};
    case Reduction::kMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case Reduction::kMax:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    default:
      return T{0};
  }
}

}  // namespace

void merge_bytes(Reduction reduction, mv_dtype dtype, std::byte* dst, std::span<const std::byte* const> sources, size_t count,
                 uint64_t divisor) noexcept {
  if (is_floating(dtype) || reduction == Reduction::kSum)
    return HWY_DYNAMIC_DISPATCH(merge_vectors)(reduction, dtype, dst, sources, count, divisor);
  with_integer(dtype, [&](auto type) { merge_integers_by<decltype(type)>(reduction, dst, sources, count); });
}

void reduce_bytes(Reduction reduction, mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, Operand dst_is) noexcept {
  if (reduction == Reduction::kAverage) reduction = Reduction::kSum;
  if (reduction == Reduction::kSum && dst_is == Operand::kFirst && !is_half(dtype)) return add_bytes(dtype, dst, src, count);
  const std::byte* const sources[] = {dst_is == Operand::kFirst ? dst : src, dst_is == Operand::kFirst ? src : dst};
  merge_bytes(reduction, dtype, dst, sources, count);
}

void divide_bytes(mv_dtype dtype, std::byte* values, size_t count, uint64_t divisor) noexcept {
  const std::byte* const sources[] = {values};
  merge_bytes(Reduction::kAverage, dtype, values, sources, count, divisor);
}

void fill_neutral(Reduction reduction, mv_dtype dtype, std::byte* values, size_t count) noexcept {
  with_element(dtype, [&](auto stored) {
    const auto value = neutral<Computed<decltype(stored)>>(reduction);
    if constexpr (std::is_same_v<decltype(stored), std::remove_const_t<decltype(value)>>) stored = value;
    else narrow_bytes(dtype, reinterpret_cast<std::byte*>(&stored), reinterpret_cast<const std::byte*>(&value), 1);
    for (size_t i = 0; i < count; ++i) set_element(values, i, stored);
  });
}

}  // namespace mv::math
#endif  // HWY_ONCE
