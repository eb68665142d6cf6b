// Helpers for the vectors of one instruction set. Included once for each, inside the files that foreach_target.h
// compiles.
#if defined(MV_MATH_LANES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef MV_MATH_LANES_INL_HPP
#undef MV_MATH_LANES_INL_HPP
#else
#define MV_MATH_LANES_INL_HPP
#endif

#include <hwy/highway.h>
#include <polyverso/polyverso.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "math/elements.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// hn::LoadU() and hn::StoreU(), which require alignment for vectors of a single element; these do not.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load(D tag, const T* from) {
  if constexpr (hn::MaxLanes(tag) > 1) return hn::LoadU(tag, from);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return hn::Set(tag, value);
}
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void store(hn::Vec<D> value, D tag, T* to) {
  if constexpr (hn::MaxLanes(tag) > 1) return hn::StoreU(value, tag, to);
  const T number = hn::GetLane(value);
  std::memcpy(to, &number, sizeof(T));
}

template <typename T, size_t kLanes, typename Work>
HWY_INLINE void over_rest(size_t count, size_t i, const Work& work) {
  if constexpr (kLanes > 0) {
    const hn::CappedTag<T, kLanes> tag;
    for (; i + hn::Lanes(tag) <= count; i += hn::Lanes(tag)) work(tag, i);
    over_rest<T, kLanes / 2>(count, i, work);
  }
}

/// Calls work(tag, first) for i .. count - 1: whole vectors, then ever shorter ones for the rest.
template <typename D, typename Work>
HWY_INLINE void over_tail(size_t i, size_t count, D tag, const Work& work) {
  for (; i + hn::Lanes(tag) <= count; i += hn::Lanes(tag)) work(tag, i);
  over_rest<hn::TFromD<D>, hn::MaxLanes(tag) / 2>(count, i, work);
}

/// The same for 0 .. count - 1. Nothing outside the range is touched, and every element goes through the same
/// arithmetic. Rows are often shorter than a few vectors.
template <typename T, typename Work>
HWY_INLINE void over_lanes(size_t count, const Work& work) {
  over_tail(0, count, hn::ScalableTag<T>(), work);
}

/// Calls work(tag, first) for the elements before the first aligned vector of `memory`, and returns their number: 0 for
/// short arrays, and for elements without alignment.
template <typename D, typename Work>
HWY_INLINE size_t over_head(const void* memory, size_t count, D tag, const Work& work) {
  using T = hn::TFromD<D>;
  const size_t lanes = hn::Lanes(tag), step = lanes * sizeof(T), off = reinterpret_cast<uintptr_t>(memory) % step;
  const size_t head = off % sizeof(T) == 0 && count >= 8 * lanes ? (step - off) % step / sizeof(T) : 0;
  over_rest<T, hn::MaxLanes(tag) / 2>(head, 0, work);
  return head;
}

/// Like over_lanes(), aligned to `memory`, the target of most stores: a store that crosses a cache line costs twice.
template <typename T, typename Work>
HWY_INLINE void over_lanes_of(const void* memory, size_t count, const Work& work) {
  const hn::ScalableTag<T> tag;
  over_tail(over_head(memory, count, tag, work), count, tag, work);
}

// Conversions of halves with arithmetic that all instruction sets have. The results are therefore bit-equal, including
// NaN payloads. Where a float addition helps (it rounds a subnormal, or normalizes one), its operands and result are
// normal: flush-to-zero modes have no effect.

/// binary16 -> binary32: exact. A signalling NaN becomes a quiet one.
template <class D>
HWY_INLINE hn::Vec<D> widen_f16(D tag, hn::Vec<hn::Rebind<uint16_t, D>> half) {
  const hn::RebindToUnsigned<D> bits;
  const auto wide = hn::PromoteTo(bits, half);
  const auto sign = hn::ShiftLeft<16>(hn::And(wide, hn::Set(bits, 0x8000)));
  const auto shifted = hn::ShiftLeft<13>(hn::And(wide, hn::Set(bits, 0x7fff)));
  const auto exponent = hn::And(shifted, hn::Set(bits, 0x0f800000));
  const auto mantissa = hn::And(shifted, hn::Set(bits, 0x007fe000));
  const auto rebiased = hn::Add(shifted, hn::Set(bits, (127 - 15) << 23));
  // Subnormal: the number with the least exponent, minus the leading one that this exponent implies.
  const auto least = hn::Set(bits, (127 - 14) << 23);
  const auto subnormal = hn::BitCast(bits, hn::Sub(hn::BitCast(tag, hn::Or(least, mantissa)), hn::BitCast(tag, least)));
  const auto quiet = hn::IfThenZeroElse(hn::Eq(mantissa, hn::Zero(bits)), hn::Set(bits, 0x00400000));
  const auto special = hn::Or(hn::Or(hn::Set(bits, 0x7f800000), mantissa), quiet);
  auto out = hn::IfThenElse(hn::Eq(exponent, hn::Zero(bits)), subnormal, rebiased);
  out = hn::IfThenElse(hn::Eq(exponent, hn::Set(bits, 0x0f800000)), special, out);
  return hn::BitCast(tag, hn::Or(out, sign));
}

/// binary32 -> binary16, to nearest, ties to even.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> narrow_f16(D tag, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> bits;
  const hn::RebindToSigned<D> numbers;
  const auto all = hn::BitCast(bits, value);
  const auto size = hn::And(all, hn::Set(bits, 0x7fffffff));
  const auto sign = hn::ShiftRight<16>(hn::Xor(all, size));
  // Rounding up may carry into the exponent, up to infinity.
  const auto odd = hn::And(hn::ShiftRight<13>(size), hn::Set(bits, 1));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(size, hn::Set(bits, 0xc8000fff)), odd));
  // Below 2^-14: adding 1/2 moves the last bit of the half to the last bit of the float, which also rounds.
  const auto half = hn::Set(bits, 0x3f000000);
  const auto subnormal = hn::Sub(hn::BitCast(bits, hn::Add(hn::BitCast(tag, size), hn::BitCast(tag, half))), half);
  const auto payload = hn::Or(hn::And(hn::ShiftRight<13>(size), hn::Set(bits, 0x3ff)), hn::Set(bits, 0x7e00));
  const auto signed_size = hn::BitCast(numbers, size);  // never negative; all targets have signed comparisons
  const auto is = [&](uint32_t limit) HWY_ATTR {
    return hn::RebindMask(bits, hn::Lt(signed_size, hn::Set(numbers, static_cast<int32_t>(limit))));
  };
  auto out = hn::IfThenElse(is(0x38800000), subnormal, normal);
  out = hn::IfThenElse(is(0x47800000), out, hn::Set(bits, 0x7c00));
  out = hn::IfThenElse(is(0x7f800001), out, payload);
  return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(numbers, hn::Or(out, sign)));
}

/// bfloat16 -> binary32: exact. A signalling NaN becomes a quiet one.
template <class D>
HWY_INLINE hn::Vec<D> widen_bf16(D tag, hn::Vec<hn::Rebind<uint16_t, D>> half) {
  const hn::RebindToUnsigned<D> bits;
  const hn::RebindToSigned<D> numbers;
  const auto wide = hn::ShiftLeft<16>(hn::PromoteTo(bits, half));
  const auto size = hn::BitCast(numbers, hn::And(wide, hn::Set(bits, 0x7fffffff)));
  const auto is_nan = hn::RebindMask(bits, hn::Gt(size, hn::Set(numbers, 0x7f800000)));
  return hn::BitCast(tag, hn::IfThenElse(is_nan, hn::Or(wide, hn::Set(bits, 0x00400000)), wide));
}

/// binary32 -> bfloat16, to nearest, ties to even.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D>> narrow_bf16(D, hn::Vec<D> value) {
  const hn::RebindToUnsigned<D> bits;
  const hn::RebindToSigned<D> numbers;
  const auto all = hn::BitCast(bits, value);
  const auto odd = hn::And(hn::ShiftRight<16>(all), hn::Set(bits, 1));
  const auto rounded = hn::Add(hn::Add(all, hn::Set(bits, 0x7fff)), odd);
  const auto size = hn::BitCast(numbers, hn::And(all, hn::Set(bits, 0x7fffffff)));
  const auto is_nan = hn::RebindMask(bits, hn::Gt(size, hn::Set(numbers, 0x7f800000)));
  const auto out = hn::IfThenElse(is_nan, hn::Or(all, hn::Set(bits, 0x00400000)), rounded);
  return hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(numbers, hn::ShiftRight<16>(out)));
}

// load() and store() of halves convert them.

template <class D, mv_dtype kHalf>
HWY_INLINE hn::Vec<D> load(D tag, const Half<kHalf>* from) {
  const auto half = load(hn::Rebind<uint16_t, D>(), reinterpret_cast<const uint16_t*>(from));
  if constexpr (kHalf == MV_F16) return widen_f16(tag, half);
  if constexpr (kHalf == MV_BF16) return widen_bf16(tag, half);
}
template <class D, mv_dtype kHalf>
HWY_INLINE void store(hn::Vec<D> value, D tag, Half<kHalf>* to) {
  const hn::Rebind<uint16_t, D> half;
  auto* const bits = reinterpret_cast<uint16_t*>(to);
  if constexpr (kHalf == MV_F16) store(narrow_f16(tag, value), half, bits);
  if constexpr (kHalf == MV_BF16) store(narrow_bf16(tag, value), half, bits);
}

/// Calls each(tag, first) for 0 .. count - 1, like over_lanes(), and returns the sum of the squares of its results.
/// Blocks of 4096 elements are summed in T, the sums of the blocks in double. The last digits differ between
/// instruction sets.
template <typename T, typename Each>
HWY_INLINE double sum_of_squares(size_t count, const Each& each) {
  constexpr size_t kBlock = 4096;
  double sum = 0;
  for (size_t first = 0; first < count; first += kBlock) {
    const hn::ScalableTag<T> whole;
    auto squares = hn::Zero(whole);
    double rest = 0;
    over_lanes<T>(std::min(kBlock, count - first), [&](auto tag, size_t i) HWY_ATTR {
      const auto apart = each(tag, first + i);
      const auto square = hn::Mul(apart, apart);
      if constexpr (hn::MaxLanes(tag) == hn::MaxLanes(hn::ScalableTag<T>()))
        squares = hn::Add(squares, square);
      else
        rest += static_cast<double>(hn::GetLane(hn::SumOfLanes(tag, square)));
    });
    sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(whole, squares))) + rest;
  }
  return sum;
}

}  // namespace mv::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
