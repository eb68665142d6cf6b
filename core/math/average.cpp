// Compiled once for every instruction set: foreach_target.h includes this file again and again with another HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/average.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cassert>
#include <cmath>
#include <cstring>

#include "math/average.hpp"
#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void average_floats(std::byte* dst_bytes, const std::byte* src_bytes, size_t count, double factor) {
  auto* dst = reinterpret_cast<T*>(dst_bytes);
  const auto* src = reinterpret_cast<const T*>(src_bytes);
  const T theirs = static_cast<T>(factor), own = static_cast<T>(1 - factor);
  const auto one = [&](auto tag, size_t i) HWY_ATTR {
    store(hn::Add(hn::Mul(hn::Set(tag, theirs), load(tag, src + i)), hn::Mul(hn::Set(tag, own), load(tag, dst + i))), tag, dst + i);
  };
  over_lanes<T>(count, one);
}

template <mv_dtype kHalf>
HWY_INLINE void average_halves(std::byte* dst_bytes, const std::byte* src_bytes, size_t count, double factor) {
  auto* dst = reinterpret_cast<uint16_t*>(dst_bytes);
  const auto* src = reinterpret_cast<const uint16_t*>(src_bytes);
  const float theirs = static_cast<float>(factor), own = static_cast<float>(1 - factor);
  const auto one = [&](auto tag, size_t i) HWY_ATTR {
    const auto mean =
        hn::Add(hn::Mul(hn::Set(tag, theirs), widen<kHalf>(tag, src + i)), hn::Mul(hn::Set(tag, own), widen<kHalf>(tag, dst + i)));
    narrow<kHalf>(tag, mean, dst + i);
  };
  over_lanes<float>(count, one);
}

void average_f32(std::byte* dst, const std::byte* src, size_t count, double factor) { average_floats<float>(dst, src, count, factor); }
void average_f64(std::byte* dst, const std::byte* src, size_t count, double factor) { average_floats<double>(dst, src, count, factor); }
void average_f16(std::byte* dst, const std::byte* src, size_t count, double factor) { average_halves<MV_F16>(dst, src, count, factor); }
void average_bf16(std::byte* dst, const std::byte* src, size_t count, double factor) { average_halves<MV_BF16>(dst, src, count, factor); }

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

/// Counters beside parameters: few, and never worth a vector.
template <typename T>
void average_integers(std::byte* dst, const std::byte* src, size_t count, double factor) {
  for (size_t i = 0; i < count; ++i) {
    T own, theirs;
    std::memcpy(&own, dst + i * sizeof(T), sizeof(T));
    std::memcpy(&theirs, src + i * sizeof(T), sizeof(T));
    if (own == theirs) continue;  // which also keeps 64-bit numbers that no double holds
    const double mean = std::nearbyint(factor * static_cast<double>(theirs) + (1 - factor) * static_cast<double>(own));
    // A mean lies between the two, but for the rounding of numbers beyond 2^53.
    const auto low = static_cast<double>(own < theirs ? own : theirs), high = static_cast<double>(own < theirs ? theirs : own);
    const T rounded = mean <= low ? (own < theirs ? own : theirs) : mean >= high ? (own < theirs ? theirs : own) : static_cast<T>(mean);
    std::memcpy(dst + i * sizeof(T), &rounded, sizeof(T));
  }
}

}  // namespace

void average_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, double factor) noexcept {
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
  }
}

}  // namespace mv::math
#endif  // HWY_ONCE
