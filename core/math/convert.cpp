// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/convert.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cassert>

#include "math/convert.hpp"
#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math {
namespace HWY_NAMESPACE {

template <mv_dtype kHalf>
HWY_INLINE void widen_range(std::byte* dst, const std::byte* src, size_t count) {
  const auto* from = reinterpret_cast<const uint16_t*>(src);
  auto* to = reinterpret_cast<float*>(dst);
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR { store(widen<kHalf>(tag, from + i), tag, to + i); });
}

template <mv_dtype kHalf>
HWY_INLINE void narrow_range(std::byte* dst, const std::byte* src, size_t count) {
  const auto* from = reinterpret_cast<const float*>(src);
  auto* to = reinterpret_cast<uint16_t*>(dst);
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR { narrow<kHalf>(tag, load(tag, from + i), to + i); });
}

void widen_range_f16(std::byte* dst, const std::byte* src, size_t count) { widen_range<MV_F16>(dst, src, count); }
void widen_range_bf16(std::byte* dst, const std::byte* src, size_t count) { widen_range<MV_BF16>(dst, src, count); }
void narrow_range_f16(std::byte* dst, const std::byte* src, size_t count) { narrow_range<MV_F16>(dst, src, count); }
void narrow_range_bf16(std::byte* dst, const std::byte* src, size_t count) { narrow_range<MV_BF16>(dst, src, count); }

}  // namespace HWY_NAMESPACE
}  // namespace mv::math
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
namespace {

HWY_EXPORT(widen_range_f16);
HWY_EXPORT(widen_range_bf16);
HWY_EXPORT(narrow_range_f16);
HWY_EXPORT(narrow_range_bf16);

}  // namespace

void widen_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept {
  assert(dtype == MV_F16 || dtype == MV_BF16);
  if (dtype == MV_F16) {
    HWY_DYNAMIC_DISPATCH(widen_range_f16)(dst, src, count);
  } else {
    HWY_DYNAMIC_DISPATCH(widen_range_bf16)(dst, src, count);
  }
}

void narrow_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept {
  assert(dtype == MV_F16 || dtype == MV_BF16);
  if (dtype == MV_F16) {
    HWY_DYNAMIC_DISPATCH(narrow_range_f16)(dst, src, count);
  } else {
    HWY_DYNAMIC_DISPATCH(narrow_range_bf16)(dst, src, count);
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
