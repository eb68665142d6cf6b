// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/merge.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "math/lanes-inl.hpp"
#include "math/merge.hpp"

#ifndef MV_MATH_MERGE_SOURCES
#define MV_MATH_MERGE_SOURCES
namespace mv::math {
namespace {

struct Sources {
  const std::byte* const* at;
  size_t count;
};

}  // namespace
}  // namespace mv::math
#endif

HWY_BEFORE_NAMESPACE();
namespace mv::math {
namespace HWY_NAMESPACE {

template <Reduction kReduction, class D>
HWY_INLINE hn::Vec<D> merge(D tag, hn::Vec<D> a, hn::Vec<D> b) {
  (void)tag;
  if constexpr (kReduction == Reduction::kProd) return hn::Mul(a, b);
  // The instruction sets' native minima treat NaNs differently, and so do Highway's comparisons of a value with itself.
  if constexpr (kReduction == Reduction::kMin) return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Lt(a, b)), a, b);
  if constexpr (kReduction == Reduction::kMax) return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::Lt(b, a)), a, b);
  return hn::Add(a, b);
}

/// Merges floats directly, and halves (kHalf) as floats. `T` is the type of the computation, `Stored` that in memory.
template <Reduction kReduction, typename T, typename Stored, mv_dtype kHalf>
struct Floats {
  std::byte* dst;
  Sources sources;
  T divisor;

  template <class D>
  HWY_INLINE hn::Vec<D> take(D tag, size_t source, size_t i) const {
    const auto* from = reinterpret_cast<const Stored*>(sources.at[source]) + i;
    if constexpr (kHalf != MV_RAW) return widen<kHalf>(tag, from);
    if constexpr (kHalf == MV_RAW) return load(tag, from);
  }
  template <class D>
  HWY_INLINE void put(D tag, hn::Vec<D> value, size_t i) const {
    if constexpr (kReduction == Reduction::kAverage) value = hn::Div(value, hn::Set(tag, divisor));
    auto* const to = reinterpret_cast<Stored*>(dst) + i;
    if constexpr (kHalf != MV_RAW) narrow<kHalf>(tag, value, to);
    if constexpr (kHalf == MV_RAW) store(value, tag, to);
  }
  template <class D>
  HWY_INLINE void one(D tag, size_t i) const {
    auto value = take(tag, 0, i);
    for (size_t source = 1; source < sources.count; ++source) value = merge<kReduction>(tag, value, take(tag, source, i));
    put(tag, value, i);
  }
  /// Four vectors at a time: several loads are in flight, and each source's pointer is loaded once for all four.
  template <class D>
  HWY_INLINE void four(D tag, size_t i) const {
    const size_t lanes = hn::Lanes(tag);
    auto a = take(tag, 0, i), b = take(tag, 0, i + lanes), c = take(tag, 0, i + 2 * lanes), d = take(tag, 0, i + 3 * lanes);
    for (size_t source = 1; source < sources.count; ++source) {
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

template <Reduction kReduction, typename T, typename Stored, mv_dtype kHalf>
HWY_INLINE void merge_floats(std::byte* dst, const Sources& sources, size_t count, uint64_t divisor) {
  const Floats<kReduction, T, Stored, kHalf> work{dst, sources, static_cast<T>(divisor)};
  const hn::ScalableTag<T> tag;
  const size_t lanes = hn::Lanes(tag);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) work.four(tag, i);
  for (; i + lanes <= count; i += lanes) work.one(tag, i);
  over_rest<T, hn::MaxLanes(tag) / 2>(count, i, [&](auto rest, size_t at) HWY_ATTR { work.one(rest, at); });
}

template <typename T, typename Stored, mv_dtype kHalf>
HWY_INLINE void merge_by(Reduction reduction, std::byte* dst, const Sources& sources, size_t count, uint64_t divisor) {
  switch (reduction) {
    case Reduction::kSum:
      return merge_floats<Reduction::kSum, T, Stored, kHalf>(dst, sources, count, divisor);
    case Reduction::kProd:
      return merge_floats<Reduction::kProd, T, Stored, kHalf>(dst, sources, count, divisor);
    case Reduction::kMin:
      return merge_floats<Reduction::kMin, T, Stored, kHalf>(dst, sources, count, divisor);
    case Reduction::kMax:
      return merge_floats<Reduction::kMax, T, Stored, kHalf>(dst, sources, count, divisor);
    case Reduction::kAverage:
      return merge_floats<Reduction::kAverage, T, Stored, kHalf>(dst, sources, count, divisor);
  }
}

void merge_f32(Reduction reduction, std::byte* dst, const Sources& sources, size_t count, uint64_t divisor) {
  merge_by<float, float, MV_RAW>(reduction, dst, sources, count, divisor);
}
void merge_f64(Reduction reduction, std::byte* dst, const Sources& sources, size_t count, uint64_t divisor) {
  merge_by<double, double, MV_RAW>(reduction, dst, sources, count, divisor);
}
void merge_f16(Reduction reduction, std::byte* dst, const Sources& sources, size_t count, uint64_t divisor) {
  merge_by<float, uint16_t, MV_F16>(reduction, dst, sources, count, divisor);
}
void merge_bf16(Reduction reduction, std::byte* dst, const Sources& sources, size_t count, uint64_t divisor) {
  merge_by<float, uint16_t, MV_BF16>(reduction, dst, sources, count, divisor);
}

}  // namespace HWY_NAMESPACE
}  // namespace mv::math
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
namespace {

HWY_EXPORT(merge_f32);
HWY_EXPORT(merge_f64);
HWY_EXPORT(merge_f16);
HWY_EXPORT(merge_bf16);

/// Integers are counters among the parameters: few, and not worth vector code.
template <typename T, typename Merge>
void merge_integers(std::byte* dst, const Sources& sources, size_t count, const Merge& merge) {
  for (size_t i = 0; i < count; ++i) {
    T value, next;
    std::memcpy(&value, sources.at[0] + i * sizeof(T), sizeof(T));
    for (size_t source = 1; source < sources.count; ++source) {
      std::memcpy(&next, sources.at[source] + i * sizeof(T), sizeof(T));
      value = merge(value, next);
    }
    std::memcpy(dst + i * sizeof(T), &value, sizeof(T));
  }
}

template <typename Signed, typename Unsigned>
void merge_integers_by(Reduction reduction, std::byte* dst, const Sources& sources, size_t count) {
  switch (reduction) {
    case Reduction::kSum:  // as unsigned numbers, which wrap; in 64 bits, because small types are promoted to int, which overflows
      return merge_integers<Unsigned>(dst, sources, count, [](uint64_t a, uint64_t b) { return static_cast<Unsigned>(a + b); });
    case Reduction::kProd:
      return merge_integers<Unsigned>(dst, sources, count, [](uint64_t a, uint64_t b) { return static_cast<Unsigned>(a * b); });
    case Reduction::kMin:
      return merge_integers<Signed>(dst, sources, count, [](Signed a, Signed b) { return std::min(a, b); });
    case Reduction::kMax:
      return merge_integers<Signed>(dst, sources, count, [](Signed a, Signed b) { return std::max(a, b); });
    case Reduction::kAverage:
      assert(false);
  }
}

}  // namespace

void merge_bytes(Reduction reduction, mv_dtype dtype, std::byte* dst, const std::byte* const* source_places, size_t source_count,
                 size_t count, uint64_t divisor) noexcept {
  const Sources sources{source_places, source_count};
  switch (dtype) {
    case MV_F32:
      return HWY_DYNAMIC_DISPATCH(merge_f32)(reduction, dst, sources, count, divisor);
    case MV_F64:
      return HWY_DYNAMIC_DISPATCH(merge_f64)(reduction, dst, sources, count, divisor);
    case MV_F16:
      return HWY_DYNAMIC_DISPATCH(merge_f16)(reduction, dst, sources, count, divisor);
    case MV_BF16:
      return HWY_DYNAMIC_DISPATCH(merge_bf16)(reduction, dst, sources, count, divisor);
    case MV_I32:
      return merge_integers_by<int32_t, uint32_t>(reduction, dst, sources, count);
    case MV_I64:
      return merge_integers_by<int64_t, uint64_t>(reduction, dst, sources, count);
    case MV_U8:
      return merge_integers_by<uint8_t, uint8_t>(reduction, dst, sources, count);
    case MV_I8:
      return merge_integers_by<int8_t, uint8_t>(reduction, dst, sources, count);
    default:
      assert(false);
  }
}

}  // namespace mv::math
#endif  // HWY_ONCE
