// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/stream.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <cstdint>
#include <cstring>

#include "math/stream.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void stream(std::byte* dst_bytes, const std::byte* src_bytes, size_t bytes) {
  const hn::ScalableTag<uint8_t> tag;
  const size_t lanes = hn::Lanes(tag);
  auto* dst = reinterpret_cast<uint8_t*>(dst_bytes);
  const auto* src = reinterpret_cast<const uint8_t*>(src_bytes);
  size_t i = 0;
  for (; i + 2 * lanes <= bytes; i += 2 * lanes) {
    const auto a = hn::LoadU(tag, src + i), b = hn::LoadU(tag, src + i + lanes);
    hn::Stream(a, tag, dst + i);
    hn::Stream(b, tag, dst + i + lanes);
  }
  hwy::FlushStream();
  std::memcpy(dst + i, src + i, bytes - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace mv::math
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
namespace {
HWY_EXPORT(stream);
}  // namespace

void stream_bytes(std::byte* dst, const std::byte* src, size_t bytes) noexcept { HWY_DYNAMIC_DISPATCH(stream)(dst, src, bytes); }

}  // namespace mv::math
#endif  // HWY_ONCE
