#pragma once
// The C++ types of elements, chosen by a dtype that is known only at run time.

#include <polyverso/polyverso.h>

#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace mv::math {

/// A 16-bit float in memory; kDtype is MV_F16 or MV_BF16.
template <mv_dtype kDtype>
struct Half {
  uint16_t bits;
};

template <typename T>
struct Computation {
  using Type = T;
};
template <mv_dtype kDtype>
struct Computation<Half<kDtype>> {
  using Type = float;
};
/// The type in which elements of type T are computed.
template <typename T>
using Computed = typename Computation<T>::Type;

constexpr bool is_half(mv_dtype dtype) { return dtype == MV_F16 || dtype == MV_BF16; }
constexpr bool is_floating(mv_dtype dtype) { return dtype == MV_F32 || dtype == MV_F64 || is_half(dtype); }

// Each of these returns work(T()), where T is the type of the dtype's elements. They are always inlined: `work` may be
// compiled for another instruction set than this header.

template <typename Work>
[[gnu::always_inline]] inline decltype(auto) with_half(mv_dtype dtype, const Work& work) {
  assert(is_half(dtype));
  return dtype == MV_F16 ? work(Half<MV_F16>()) : work(Half<MV_BF16>());
}

/// f32 and f64
template <typename Work>
[[gnu::always_inline]] inline decltype(auto) with_float(mv_dtype dtype, const Work& work) {
  assert(dtype == MV_F32 || dtype == MV_F64);
  return dtype == MV_F32 ? work(float()) : work(double());
}

template <typename Work>
[[gnu::always_inline]] inline decltype(auto) with_floating(mv_dtype dtype, const Work& work) {
  return is_half(dtype) ? with_half(dtype, work) : with_float(dtype, work);
}

/// Any other dtype counts as MV_U8.
template <typename Work>
[[gnu::always_inline]] inline decltype(auto) with_integer(mv_dtype dtype, const Work& work) {
  switch (dtype) {
    case MV_I64:
      return work(int64_t());
    case MV_I32:
      return work(int32_t());
    case MV_I8:
      return work(int8_t());
    default:
      return work(uint8_t());
  }
}

/// All dtypes but halves.
template <typename Work>
[[gnu::always_inline]] inline decltype(auto) with_number(mv_dtype dtype, const Work& work) {
  return dtype == MV_F32 || dtype == MV_F64 ? with_float(dtype, work) : with_integer(dtype, work);
}

template <typename Work>
[[gnu::always_inline]] inline decltype(auto) with_element(mv_dtype dtype, const Work& work) {
  return is_half(dtype) ? with_half(dtype, work) : with_number(dtype, work);
}

/// The T nearest to a value; of integers, 0 for a NaN.
template <typename T>
T nearest(double value) {
  if constexpr (!std::is_integral_v<T>) return static_cast<T>(value);
  constexpr T kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
  const double whole = std::nearbyint(value);
  // The largest i64 is not a double: it is rounded up to a double that is out of range.
  return std::isnan(whole) ? T{0} : whole <= static_cast<double>(kLeast) ? kLeast : whole >= static_cast<double>(kMost) ? kMost : static_cast<T>(whole);
}

/// Elements of memory without alignment.
template <typename T>
T element(const std::byte* from, size_t i) noexcept {
  T value;
  std::memcpy(&value, from + i * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void set_element(std::byte* to, size_t i, T value) noexcept {
  std::memcpy(to + i * sizeof(T), &value, sizeof(T));
}

}  // namespace mv::math
