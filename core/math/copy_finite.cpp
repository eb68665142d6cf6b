// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/copy_finite.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <hwy/cache_control.h>

#include <cstdint>
#include <cstring>

#include "math/copy_finite.hpp"
#include "math/kernels.hpp"
#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math {
namespace HWY_NAMESPACE {

/// The bits of `exponent_mask` are all ones exactly in NaN and infinity. Copies whole vectors only, and stores the
/// number of copied elements in `done`. dst is aligned to the vector size.
template <typename Bits>
HWY_INLINE bool stream_range(std::byte* dst_bytes, const std::byte* src_bytes, size_t count, Bits exponent_mask, size_t* done) {
  const hn::ScalableTag<Bits> tag;
  const size_t lanes = hn::Lanes(tag);
  const auto exponent = hn::Set(tag, exponent_mask);
  auto* dst = reinterpret_cast<Bits*>(dst_bytes);
  const auto* src = reinterpret_cast<const Bits*>(src_bytes);
  auto bad = hn::Zero(tag);
  size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    const auto a = hn::LoadU(tag, src + i), b = hn::LoadU(tag, src + i + lanes);
    bad = hn::Or(bad, hn::VecFromMask(tag, hn::Eq(hn::And(a, exponent), exponent)));
    bad = hn::Or(bad, hn::VecFromMask(tag, hn::Eq(hn::And(b, exponent), exponent)));
    hn::Stream(a, tag, dst + i);
    hn::Stream(b, tag, dst + i + lanes);
  }
  hwy::FlushStream();  // before a reader is notified of the data
  *done = i;
  return hn::AllTrue(tag, hn::Eq(bad, hn::Zero(tag)));
}

bool stream_f32(std::byte* dst, const std::byte* src, size_t count, size_t* done) {
  return stream_range<uint32_t>(dst, src, count, 0x7f800000, done);
}
bool stream_f64(std::byte* dst, const std::byte* src, size_t count, size_t* done) {
  return stream_range<uint64_t>(dst, src, count, 0x7ff0000000000000, done);
}

}  // namespace HWY_NAMESPACE
}  // namespace mv::math
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
namespace {

HWY_EXPORT(stream_f32);
HWY_EXPORT(stream_f64);

/// The largest vector of any instruction set.
constexpr size_t kVectorBytes = 64;
constexpr size_t kPieceBytes = 128 << 10;

}  // namespace

bool copy_finite_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count, size_t element, Copied how) noexcept {
  size_t done = 0;
  bool finite = true;
  const bool streams = how == Copied::kPastCaches && reinterpret_cast<uintptr_t>(dst) % kVectorBytes == 0;
  if (streams && dtype == MV_F32) finite = HWY_DYNAMIC_DISPATCH(stream_f32)(dst, src, count, &done);
  if (streams && dtype == MV_F64) finite = HWY_DYNAMIC_DISPATCH(stream_f64)(dst, src, count, &done);
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
