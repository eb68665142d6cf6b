// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/sum.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cassert>

#include "math/lanes-inl.hpp"
#include "math/sum.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math {
namespace HWY_NAMESPACE {

template <typename T>
HWY_INLINE void sum_range(std::byte* out_bytes, const std::byte* const* sources, size_t how_many, size_t count) {
  const auto source = [&](size_t s) HWY_ATTR { return reinterpret_cast<const T*>(sources[s]); };
  T* const out = reinterpret_cast<T*>(out_bytes);
  const hn::ScalableTag<T> tag;
  const size_t lanes = hn::Lanes(tag);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const T* from = source(0) + i;
    auto a = hn::LoadU(tag, from), b = hn::LoadU(tag, from + lanes);
    auto c = hn::LoadU(tag, from + 2 * lanes), d = hn::LoadU(tag, from + 3 * lanes);
    for (size_t s = 1; s < how_many; ++s) {
      from = source(s) + i;
      a = hn::Add(a, hn::LoadU(tag, from));
      b = hn::Add(b, hn::LoadU(tag, from + lanes));
      c = hn::Add(c, hn::LoadU(tag, from + 2 * lanes));
      d = hn::Add(d, hn::LoadU(tag, from + 3 * lanes));
    }
    hn::StoreU(a, tag, out + i);
    hn::StoreU(b, tag, out + i + lanes);
    hn::StoreU(c, tag, out + i + 2 * lanes);
    hn::StoreU(d, tag, out + i + 3 * lanes);
  }
  const auto few = [&](auto some, size_t at) HWY_ATTR {
    auto sum = load(some, source(0) + at);
    for (size_t s = 1; s < how_many; ++s) sum = hn::Add(sum, load(some, source(s) + at));
    store(sum, some, out + at);
  };
  for (; i + lanes <= count; i += lanes) few(tag, i);
  over_rest<T, hn::MaxLanes(tag) / 2>(count, i, few);
}

// Integers are added as unsigned ones, which wrap around.
void sum_f32(std::byte* out, const std::byte* const* from, size_t how_many, size_t count) { sum_range<float>(out, from, how_many, count); }
void sum_f64(std::byte* out, const std::byte* const* from, size_t how_many, size_t count) { sum_range<double>(out, from, how_many, count); }
void sum_i32(std::byte* out, const std::byte* const* from, size_t how_many, size_t count) { sum_range<uint32_t>(out, from, how_many, count); }
void sum_i64(std::byte* out, const std::byte* const* from, size_t how_many, size_t count) { sum_range<uint64_t>(out, from, how_many, count); }
void sum_u8(std::byte* out, const std::byte* const* from, size_t how_many, size_t count) { sum_range<uint8_t>(out, from, how_many, count); }

}  // namespace HWY_NAMESPACE
}  // namespace mv::math
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
namespace {

HWY_EXPORT(sum_f32);
HWY_EXPORT(sum_f64);
HWY_EXPORT(sum_i32);
HWY_EXPORT(sum_i64);
HWY_EXPORT(sum_u8);

}  // namespace

void sum_bytes(mv_dtype dtype, std::byte* out, std::span<const std::byte* const> sources, size_t count) noexcept {
  const std::byte* const* const from = sources.data();
  switch (dtype) {
    case MV_F32:
      return HWY_DYNAMIC_DISPATCH(sum_f32)(out, from, sources.size(), count);
    case MV_F64:
      return HWY_DYNAMIC_DISPATCH(sum_f64)(out, from, sources.size(), count);
    case MV_I32:
      return HWY_DYNAMIC_DISPATCH(sum_i32)(out, from, sources.size(), count);
    case MV_I64:
      return HWY_DYNAMIC_DISPATCH(sum_i64)(out, from, sources.size(), count);
    case MV_U8:
    case MV_I8:
      return HWY_DYNAMIC_DISPATCH(sum_u8)(out, from, sources.size(), count);
    default:
      assert(false);
  }
}

}  // namespace mv::math
#endif  // HWY_ONCE
