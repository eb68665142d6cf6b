#include "math/reduction.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "math/convert.hpp"
#include "math/kernels.hpp"

namespace mv::math {
namespace {

template <typename T>
T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// The unsigned type for arithmetic on integers: it wraps, where signed overflow is undefined.
template <typename T, bool kIsInteger = std::is_integral_v<T>>
struct Wrapping {
  using Type = T;
};
template <typename T>
struct Wrapping<T, true> {
  using Type = std::conditional_t<sizeof(T) < sizeof(uint32_t), uint32_t, std::make_unsigned_t<T>>;
};

struct Sum {
  template <typename T>
  static T of(T first, T second) noexcept {
    using W = typename Wrapping<T>::Type;
    return static_cast<T>(static_cast<W>(first) + static_cast<W>(second));
  }
};
struct Prod {
  template <typename T>
  static T of(T first, T second) noexcept {
    using W = typename Wrapping<T>::Type;
    return static_cast<T>(static_cast<W>(first) * static_cast<W>(second));
  }
};
template <typename T>
bool is_nan(T value) noexcept {
  return value != value;
}
struct Min {
  template <typename T>
  static T of(T first, T second) noexcept {
    return is_nan(first) || first < second ? first : second;
  }
};
struct Max {
  template <typename T>
  static T of(T first, T second) noexcept {
    return is_nan(first) || first > second ? first : second;
  }
};

template <typename F, typename T>
void combine(std::byte* dst, const std::byte* src, size_t count, Operand dst_is) noexcept {
  const auto each = [&](auto f) {
    for (size_t i = 0; i < count; ++i) {
      const T value = f(load<T>(dst + i * sizeof(T)), load<T>(src + i * sizeof(T)));
      std::memcpy(dst + i * sizeof(T), &value, sizeof(T));
    }
  };
  if (dst_is == Operand::kFirst)
    each([](T mine, T theirs) { return F::of(mine, theirs); });
  else
    each([](T mine, T theirs) { return F::of(theirs, mine); });
}

constexpr size_t kPiece = 1024;  // elements that fit into the L1 cache, widened

template <typename F>
void combine_halves(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, Operand dst_is) noexcept {
  alignas(64) std::array<std::byte, kPiece * sizeof(float)> mine, theirs;
  for (size_t first = 0; first < count; first += kPiece) {
    const size_t here = std::min(kPiece, count - first);
    widen_bytes(dtype, mine.data(), dst + 2 * first, here);
    widen_bytes(dtype, theirs.data(), src + 2 * first, here);
    combine<F, float>(mine.data(), theirs.data(), here, dst_is);
    narrow_bytes(dtype, dst + 2 * first, mine.data(), here);
  }
}

template <typename F>
void combine_any(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, Operand dst_is) noexcept {
  switch (dtype) {
    case MV_F32:
      return combine<F, float>(dst, src, count, dst_is);
    case MV_F64:
      return combine<F, double>(dst, src, count, dst_is);
    case MV_I64:
      return combine<F, int64_t>(dst, src, count, dst_is);
    case MV_I32:
      return combine<F, int32_t>(dst, src, count, dst_is);
    case MV_U8:
      return combine<F, uint8_t>(dst, src, count, dst_is);
    case MV_I8:
      return combine<F, int8_t>(dst, src, count, dst_is);
    case MV_F16:
    case MV_BF16:
      return combine_halves<F>(dtype, dst, src, count, dst_is);
    default:
      return;
  }
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

template <typename T>
void fill(Reduction reduction, std::byte* values, size_t count) noexcept {
  const T value = neutral<T>(reduction);
  for (size_t i = 0; i < count; ++i) std::memcpy(values + i * sizeof(T), &value, sizeof(T));
}

template <typename T>
void divide(std::byte* values, size_t count, T divisor) noexcept {
  for (size_t i = 0; i < count; ++i) {
    const T value = load<T>(values + i * sizeof(T)) / divisor;
    std::memcpy(values + i * sizeof(T), &value, sizeof(T));
  }
}

/// Calls work(floats, count) on pieces of halves, widened before and narrowed after.
template <typename Work>
void as_floats(mv_dtype dtype, std::byte* values, size_t count, Work work) noexcept {
  alignas(64) std::array<std::byte, kPiece * sizeof(float)> wide;
  for (size_t first = 0; first < count; first += kPiece) {
    const size_t here = std::min(kPiece, count - first);
    widen_bytes(dtype, wide.data(), values + 2 * first, here);
    work(wide.data(), here);
    narrow_bytes(dtype, values + 2 * first, wide.data(), here);
  }
}

}  // namespace

void reduce_bytes(Reduction reduction, mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, Operand dst_is) noexcept {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      if (dst_is == Operand::kFirst && (dtype == MV_F32 || dtype == MV_F64)) return add_bytes(dtype, dst, src, count);
      return combine_any<Sum>(dtype, dst, src, count, dst_is);
    case Reduction::kProd:
      return combine_any<Prod>(dtype, dst, src, count, dst_is);
    case Reduction::kMin:
      return combine_any<Min>(dtype, dst, src, count, dst_is);
    case Reduction::kMax:
      return combine_any<Max>(dtype, dst, src, count, dst_is);
  }
}

void divide_bytes(mv_dtype dtype, std::byte* values, size_t count, double divisor) noexcept {
  if (dtype == MV_F64) return divide<double>(values, count, divisor);
  const auto wide = [&](std::byte* floats, size_t here) { divide<float>(floats, here, static_cast<float>(divisor)); };
  if (dtype == MV_F32) return wide(values, count);
  if (dtype == MV_F16 || dtype == MV_BF16) as_floats(dtype, values, count, wide);
}

void fill_neutral(Reduction reduction, mv_dtype dtype, std::byte* values, size_t count) noexcept {
  switch (dtype) {
    case MV_F32:
      return fill<float>(reduction, values, count);
    case MV_F64:
      return fill<double>(reduction, values, count);
    case MV_I64:
      return fill<int64_t>(reduction, values, count);
    case MV_I32:
      return fill<int32_t>(reduction, values, count);
    case MV_U8:
      return fill<uint8_t>(reduction, values, count);
    case MV_I8:
      return fill<int8_t>(reduction, values, count);
    case MV_F16:
    case MV_BF16:
      return as_floats(dtype, values, count, [&](std::byte* floats, size_t here) { fill<float>(reduction, floats, here); });
    default:
      std::memset(values, 0, count);
  }
}

}  // namespace mv::math
