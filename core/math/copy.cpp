// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/copy.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <cstdint>
#include <cstring>

#include "math/copy.hpp"
#include "math/kernels.hpp"
#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math::HWY_NAMESPACE {

/// Copies whole vectors only, and calls see(tag, vector) for each. Returns the number of copied elements. dst is aligned
/// to the vector size.
template <typename Bits, typename See>
HWY_INLINE size_t stream_vectors(std::byte* dst_bytes, const std::byte* src_bytes, size_t count, const See& see) {
  const hn::ScalableTag<Bits> tag;
  const size_t lanes = hn::Lanes(tag);
  auto* dst = reinterpret_cast<Bits*>(dst_bytes);
  const auto* src = reinterpret_cast<const Bits*>(src_bytes);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto a = hn::LoadU(tag, src + i), b = hn::LoadU(tag, src + i + lanes);
    see(tag, a);
    see(tag, b);
    hn::Stream(a, tag, dst + i);
    hn::Stream(b, tag, dst + i + lanes);
  }
  hwy::FlushStream();  // before a reader is notified of the data
  return i;
}

/// The bits of `exponent_mask` are all ones exactly in NaN and infinity.
template <typename Bits>
HWY_INLINE bool stream_finite(std::byte* dst, const std::byte* src, size_t count, Bits exponent_mask, size_t* done) {
  const hn::ScalableTag<Bits> whole;
  auto bad = hn::Zero(whole);
  *done = stream_vectors<Bits>(dst, src, count, [&](auto tag, auto values) HWY_ATTR {
    const auto exponent = hn::Set(tag, exponent_mask);
    bad = hn::Or(bad, hn::VecFromMask(tag, hn::Eq(hn::And(values, exponent), exponent)));
  });
  return hn::AllTrue(whole, hn::Eq(bad, hn::Zero(whole)));
}

bool stream_floats(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, size_t* done) {
  return dtype == MV_F32 ? stream_finite<uint32_t>(dst, src, count, 0x7f800000, done)
                         : stream_finite<uint64_t>(dst, src, count, 0x7ff0000000000000, done);
}

void stream(std::byte* dst, const std::byte* src, size_t bytes) {
  const size_t done = stream_vectors<uint8_t>(dst, src, bytes, [](auto, auto) HWY_ATTR {});
  std::memcpy(dst + done, src + done, bytes - done);
}

}  // namespace mv::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
HWY_EXPORT(stream);
HWY_EXPORT(stream_floats);

void stream_bytes(std::byte* dst, const std::byte* src, size_t bytes) noexcept { HWY_DYNAMIC_DISPATCH(stream)(dst, src, bytes); }

bool copy_finite_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, size_t element, Copied how) noexcept {
  constexpr size_t kVectorBytes = 64;  // the largest vector of any instruction set
  constexpr size_t kPieceBytes = 128 << 10;
  size_t done = 0;
  bool finite = true;
  if (how == Copied::kPastCaches && reinterpret_cast<uintptr_t>(dst) % kVectorBytes == 0 && (dtype == MV_F32 || dtype == MV_F64))
    finite = HWY_DYNAMIC_DISPATCH(stream_floats)(dtype, dst, src, count, &done);
  // Checked and copied piece by piece: the copy finds each piece in the cache.
  for (size_t at = done * element; at < count * element; at += kPieceBytes) {
    const size_t some = count * element - at < kPieceBytes ? count * element - at : kPieceBytes;
    finite &= all_finite_bytes(dtype, src + at, some / element);
    std::memcpy(dst + at, src + at, some);
  }
  return finite;
}

}  // namespace mv::math
#endif  // HWY_ONCE
