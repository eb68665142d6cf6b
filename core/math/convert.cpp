// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/convert.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "math/convert.hpp"
#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math::HWY_NAMESPACE {

template <typename To, typename From>
HWY_INLINE void convert(std::byte* dst, const std::byte* src, size_t count) {
  auto* to = reinterpret_cast<To*>(dst);
  const auto* from = reinterpret_cast<const From*>(src);
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR { store(load(tag, from + i), tag, to + i); });
}

void widen(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) {
  with_half(dtype, [&](auto half) HWY_ATTR { convert<float, decltype(half)>(dst, src, count); });
}
void narrow(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) {
  with_half(dtype, [&](auto half) HWY_ATTR { convert<decltype(half), float>(dst, src, count); });
}

}  // namespace mv::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
HWY_EXPORT(widen);
HWY_EXPORT(narrow);

void widen_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(widen)(dtype, dst, src, count);
}
void narrow_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(narrow)(dtype, dst, src, count);
}

}  // namespace mv::math
#endif  // HWY_ONCE
