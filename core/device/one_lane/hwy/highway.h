#pragma once
// Stands in for Highway where the library's formulas are compiled for a device: a vector has one element, which belongs
// to one thread of the device. So the optimizers' formulas and the conversions of halves exist once, and processors and
// devices compute the same bits. Only what those formulas use is here, with Highway's names and meaning.
//
// Before core's sources, the include path has this folder's parent.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/both.hpp"

#define MV_ONE_LANE 1
#define HWY_NAMESPACE N_ONE_LANE
#define HWY_ONCE 0
#define HWY_ATTR
#define HWY_BEFORE_NAMESPACE() static_assert(true)
#define HWY_AFTER_NAMESPACE() static_assert(true)
#ifdef __CUDACC__
#define HWY_INLINE __host__ __device__ __forceinline__
#else
#define HWY_INLINE inline __attribute__((always_inline))
#endif

namespace hwy::HWY_NAMESPACE {

template <typename T>
struct OneLane {
  using Element = T;
};
template <class D>
using TFromD = typename D::Element;
template <class D>
using Vec = TFromD<D>;
template <typename T>
using ScalableTag = OneLane<T>;
template <typename T, size_t>
using CappedTag = OneLane<T>;
template <typename T, class D>
using Rebind = OneLane<T>;
template <size_t kBytes>
using Bits = std::conditional_t<kBytes == 8, uint64_t, std::conditional_t<kBytes == 4, uint32_t, std::conditional_t<kBytes == 2, uint16_t, uint8_t>>>;
template <class D>
using RebindToUnsigned = OneLane<Bits<sizeof(TFromD<D>)>>;
template <class D>
using RebindToSigned = OneLane<std::make_signed_t<Bits<sizeof(TFromD<D>)>>>;

template <class D>
HWY_INLINE constexpr size_t MaxLanes(D) {
  return 1;
}
template <class D>
HWY_INLINE constexpr size_t Lanes(D) {
  return 1;
}

template <class D>
HWY_INLINE Vec<D> Set(D, TFromD<D> value) {
  return value;
}
template <class D>
HWY_INLINE Vec<D> Zero(D) {
  return TFromD<D>(0);
}
template <class D>
HWY_INLINE Vec<D> Iota(D, TFromD<D> first) {
  return first;
}
template <class D>
HWY_INLINE Vec<D> LoadU(D, const TFromD<D>* from) {
  return *from;
}
template <class D>
HWY_INLINE void StoreU(Vec<D> value, D, TFromD<D>* to) {
  *to = value;
}
template <typename T>
HWY_INLINE T GetLane(T value) {
  return value;
}
template <class D>
HWY_INLINE Vec<D> SumOfLanes(D, Vec<D> value) {
  return value;
}

template <typename T>
HWY_INLINE T Add(T a, T b) {
  return static_cast<T>(a + b);
}
template <typename T>
HWY_INLINE T Sub(T a, T b) {
  return static_cast<T>(a - b);
}
template <typename T>
HWY_INLINE T Mul(T a, T b) {
  return static_cast<T>(a * b);
}
template <typename T>
HWY_INLINE T Div(T a, T b) {
  return a / b;
}
template <typename T>
HWY_INLINE T Neg(T a) {
  return -a;
}
template <typename T>
HWY_INLINE T Abs(T a) {
  return std::fabs(a);
}
template <typename T>
HWY_INLINE T Sqrt(T a) {
  return std::sqrt(a);
}
template <typename T>
HWY_INLINE T CopySign(T size, T sign) {
  return std::copysign(size, sign);
}

template <typename T>
HWY_INLINE bool Eq(T a, T b) {
  return a == b;
}
template <typename T>
HWY_INLINE bool Ne(T a, T b) {
  return a != b;
}
template <typename T>
HWY_INLINE bool Lt(T a, T b) {
  return a < b;
}
template <typename T>
HWY_INLINE bool Le(T a, T b) {
  return a <= b;
}
template <typename T>
HWY_INLINE bool Gt(T a, T b) {
  return a > b;
}
template <typename T>
HWY_INLINE bool IsNaN(T a) {
  return a != a;
}
template <class D>
HWY_INLINE bool RebindMask(D, bool mask) {
  return mask;
}
template <typename T>
HWY_INLINE T IfThenElse(bool mask, T yes, T no) {
  return mask ? yes : no;
}
template <typename T>
HWY_INLINE T IfThenElseZero(bool mask, T yes) {
  return mask ? yes : T(0);
}
template <typename T>
HWY_INLINE T IfThenZeroElse(bool mask, T no) {
  return mask ? T(0) : no;
}

// Masks are combined as well as numbers.
template <typename T>
HWY_INLINE T And(T a, T b) {
  return static_cast<T>(a & b);
}
template <typename T>
HWY_INLINE T Or(T a, T b) {
  return static_cast<T>(a | b);
}
template <typename T>
HWY_INLINE T Xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <typename T>
HWY_INLINE T Not(T a) {
  return std::is_same_v<T, bool> ? static_cast<T>(!a) : static_cast<T>(~a);
}
template <int kBits, typename T>
HWY_INLINE T ShiftLeft(T a) {
  return static_cast<T>(a << kBits);
}
template <int kBits, typename T>
HWY_INLINE T ShiftRight(T a) {
  return static_cast<T>(a >> kBits);
}

template <class D, typename T>
HWY_INLINE Vec<D> BitCast(D, T value) {
  return std::bit_cast<TFromD<D>>(value);
}
template <class D, typename T>
HWY_INLINE Vec<D> PromoteTo(D, T value) {
  return static_cast<TFromD<D>>(value);
}
template <class D, typename T>
HWY_INLINE Vec<D> DemoteTo(D, T value) {
  return static_cast<TFromD<D>>(value);
}
template <class D, typename T>
HWY_INLINE Vec<D> ConvertTo(D, T value) {
  return static_cast<TFromD<D>>(value);
}

}  // namespace hwy::HWY_NAMESPACE
