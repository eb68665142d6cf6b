// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cstring>

#include "base/prefetch.hpp"
#include "math/convert.hpp"
#include "math/kernels.hpp"
#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math::HWY_NAMESPACE {

/// Adds elements of type T to what is stored for them.
template <typename T, class D>
HWY_INLINE void add_vector(D tag, Computed<T>* dst, const T* src) {
  store(hn::Add(load(tag, dst), load(tag, src)), tag, dst);
}

template <typename T>
HWY_INLINE void add_range(std::byte* dst_bytes, const std::byte* src_bytes, size_t count) {
  auto* dst = reinterpret_cast<Computed<T>*>(dst_bytes);
  const auto* src = reinterpret_cast<const T*>(src_bytes);
  const hn::ScalableTag<Computed<T>> tag;
  const size_t lanes = hn::Lanes(tag);
  const auto add = [&](auto some, size_t i) HWY_ATTR { add_vector(some, dst + i, src + i); };
  size_t i = over_head(dst, count, tag, add);
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    add(tag, i);
    add(tag, i + lanes);
    add(tag, i + 2 * lanes);
    add(tag, i + 3 * lanes);
  }
  over_tail(i, count, tag, add);
}

/// The bits of `exponent_mask` are all ones exactly in NaN and infinity.
template <typename Bits>
HWY_INLINE bool finite_range(const std::byte* bytes, size_t count, Bits exponent_mask) {
  const hn::ScalableTag<Bits> tag;
  const size_t lanes = hn::Lanes(tag);
  const auto exponent = hn::Set(tag, exponent_mask);
  const Bits* values = reinterpret_cast<const Bits*>(bytes);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto a = hn::Eq(hn::And(hn::LoadU(tag, values + i), exponent), exponent);
    const auto b = hn::Eq(hn::And(hn::LoadU(tag, values + i + lanes), exponent), exponent);
    const auto c = hn::Eq(hn::And(hn::LoadU(tag, values + i + 2 * lanes), exponent), exponent);
    const auto d = hn::Eq(hn::And(hn::LoadU(tag, values + i + 3 * lanes), exponent), exponent);
    if (!hn::AllFalse(tag, hn::Or(hn::Or(a, b), hn::Or(c, d)))) return false;
  }
  for (; i < count; ++i) {
    if ((element<Bits>(bytes, i) & exponent_mask) == exponent_mask) return false;
  }
  return true;
}

void add(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) {
  with_element(dtype, [&](auto type) HWY_ATTR { add_range<decltype(type)>(dst, src, count); });
}

bool finite(mv_dtype dtype, const std::byte* values, size_t count) {
  switch (dtype) {
    case MV_F32:
      return finite_range<uint32_t>(values, count, 0x7f800000);
    case MV_F64:
      return finite_range<uint64_t>(values, count, 0x7ff0000000000000);
    case MV_F16:
      return finite_range<uint16_t>(values, count, 0x7c00);
    case MV_BF16:
      return finite_range<uint16_t>(values, count, 0x7f80);
    default:
      return true;
  }
}

// ---- rows

bool increasing(const int64_t* rows, size_t count) {
  const hn::ScalableTag<int64_t> tag;
  const size_t lanes = hn::Lanes(tag);
  size_t i = 1;
  for (; i + lanes <= count; i += lanes) {
    if (!hn::AllTrue(tag, hn::Lt(hn::LoadU(tag, rows + i - 1), hn::LoadU(tag, rows + i)))) return false;
  }
  for (; i < count; ++i) {
    if (rows[i - 1] >= rows[i]) return false;
  }
  return true;
}

/// The number of rows to prefetch, and the number of bytes of each: the hardware prefetcher continues longer rows.
constexpr size_t kRowsAhead = 12, kMostAhead = 512, kLine = 64;

template <bool kWrite>
HWY_INLINE void fetch(const std::byte* row, size_t row_bytes) {
  const size_t bytes = row_bytes < kMostAhead ? row_bytes : kMostAhead;
  for (size_t at = 0; at < bytes; at += kLine) base::prefetch<kWrite>(row + at);
  base::prefetch<kWrite>(row + bytes - 1);  // an unaligned row ends in one more line
}

/// Calls work(row of the table, place) for each id.
template <bool kWrite, typename Byte, typename Work>
HWY_INLINE void over_rows(Byte* table, size_t row_bytes, const Chosen& chosen, const Work& work) {
  const int64_t* const rows = chosen.rows;
  const size_t row_count = chosen.count;
  const auto row_at = [&](size_t i) HWY_ATTR { return table + static_cast<size_t>(rows[i]) * row_bytes; };
  if (row_bytes <= 8) {  // so short that out-of-order execution runs far enough ahead
    for (size_t i = 0; i < row_count; ++i) work(row_at(i), chosen.place(i));
    return;
  }
  for (size_t i = 0; i < row_count && i < kRowsAhead; ++i) fetch<kWrite>(row_at(i), row_bytes);
  for (size_t i = 0; i < row_count; ++i) {
    if (i + kRowsAhead < row_count) fetch<kWrite>(row_at(i + kRowsAhead), row_bytes);
    work(row_at(i), chosen.place(i));
  }
}

template <typename T>
HWY_INLINE void add_each_row(std::byte* table, size_t cols, const Chosen& chosen, const std::byte* values) {
  over_rows<true>(table, cols * sizeof(Computed<T>), chosen, [&](std::byte* row, size_t i) HWY_ATTR {
    const auto* from = reinterpret_cast<const T*>(values) + i * cols;
    if (cols == 1) return add_vector(hn::CappedTag<Computed<T>, 1>(), reinterpret_cast<Computed<T>*>(row), from);  // elements of an array
    add_range<T>(row, reinterpret_cast<const std::byte*>(from), cols);
  });
}

/// An inline copy for short rows: whole vectors, the last of which overlaps the one before.
HWY_INLINE void copy_row(std::byte* HWY_RESTRICT to_bytes, const std::byte* HWY_RESTRICT from_bytes, size_t bytes) {
  const hn::ScalableTag<uint8_t> tag;
  const size_t step = hn::Lanes(tag);
  auto* to = reinterpret_cast<uint8_t*>(to_bytes);
  const auto* from = reinterpret_cast<const uint8_t*>(from_bytes);
  if (bytes < step) {
    over_rest<uint8_t, hn::MaxLanes(tag) / 2>(
        bytes, 0, [&](auto rest, size_t at) HWY_ATTR { store(load(rest, from + at), rest, to + at); });
    return;
  }
  for (size_t at = 0; at + step <= bytes; at += step) hn::StoreU(hn::LoadU(tag, from + at), tag, to + at);
  hn::StoreU(hn::LoadU(tag, from + bytes - step), tag, to + bytes - step);
}

/// Rows of a size known at compile time: a copy is one load and one store.
template <size_t kBytes>
HWY_INLINE void gather_fixed(const std::byte* table, const Chosen& chosen, std::byte* out) {
  over_rows<false>(table, kBytes, chosen,
                   [&](const std::byte* row, size_t i) HWY_ATTR { std::memcpy(out + i * kBytes, row, kBytes); });
}
template <size_t kBytes>
HWY_INLINE void set_fixed(std::byte* table, const Chosen& chosen, const std::byte* values) {
  over_rows<true>(table, kBytes, chosen,
                  [&](std::byte* row, size_t i) HWY_ATTR { std::memcpy(row, values + i * kBytes, kBytes); });
}

constexpr size_t kLongRow = 2048;  // from this size on memcpy is faster

void gather_bytes(size_t row_bytes, const std::byte* table, const Chosen& chosen, std::byte* out) {
  if (row_bytes == 4) return gather_fixed<4>(table, chosen, out);
  if (row_bytes == 8) return gather_fixed<8>(table, chosen, out);
  over_rows<false>(table, row_bytes, chosen, [&](const std::byte* row, size_t i) HWY_ATTR {
    if (row_bytes < kLongRow) return copy_row(out + i * row_bytes, row, row_bytes);
    std::memcpy(out + i * row_bytes, row, row_bytes);
  });
}

void set_bytes(size_t row_bytes, std::byte* table, const Chosen& chosen, const std::byte* values) {
  if (row_bytes == 4) return set_fixed<4>(table, chosen, values);
  if (row_bytes == 8) return set_fixed<8>(table, chosen, values);
  over_rows<true>(table, row_bytes, chosen, [&](std::byte* row, size_t i) HWY_ATTR {
    if (row_bytes < kLongRow) return copy_row(row, values + i * row_bytes, row_bytes);
    std::memcpy(row, values + i * row_bytes, row_bytes);
  });
}

void add_chosen(mv_dtype dtype, std::byte* table, size_t cols, const Chosen& chosen, const std::byte* values) {
  with_element(dtype, [&](auto type) HWY_ATTR { add_each_row<decltype(type)>(table, cols, chosen, values); });
}

}  // namespace mv::math::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
HWY_EXPORT(add);
HWY_EXPORT(finite);
HWY_EXPORT(add_chosen);
HWY_EXPORT(increasing);
HWY_EXPORT(gather_bytes);
HWY_EXPORT(set_bytes);

namespace {

size_t stored_bytes(mv_dtype dtype) {
  return with_element(dtype, [](auto type) { return sizeof(Computed<decltype(type)>); });
}

}  // namespace

void add_bytes(mv_dtype dtype, std::byte* stored, const std::byte* src, size_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(add)(dtype, stored, src, count);
}

void store_bytes(mv_dtype dtype, std::byte* stored, const std::byte* src, size_t count) noexcept {
  if (is_half(dtype)) return widen_bytes(dtype, stored, src, count);
  std::memcpy(stored, src, count * stored_bytes(dtype));
}

void load_bytes(mv_dtype dtype, const std::byte* stored, std::byte* out, size_t count) noexcept {
  if (is_half(dtype)) return narrow_bytes(dtype, out, stored, count);
  std::memcpy(out, stored, count * stored_bytes(dtype));
}

bool all_finite_bytes(mv_dtype dtype, const std::byte* values, size_t count) noexcept {
  return HWY_DYNAMIC_DISPATCH(finite)(dtype, values, count);
}

bool strictly_increasing(std::span<const int64_t> rows) noexcept {
  return HWY_DYNAMIC_DISPATCH(increasing)(rows.data(), rows.size());
}

void add_rows(mv_dtype dtype, std::byte* stored, size_t cols, const Chosen& chosen, const std::byte* values) noexcept {
  HWY_DYNAMIC_DISPATCH(add_chosen)(dtype, stored, cols, chosen, values);
}

void set_rows(mv_dtype dtype, std::byte* stored, size_t cols, const Chosen& chosen, const std::byte* values) noexcept {
  if (!is_half(dtype)) return HWY_DYNAMIC_DISPATCH(set_bytes)(cols * stored_bytes(dtype), stored, chosen, values);
  for (size_t i = 0; i < chosen.count; ++i)
    widen_bytes(dtype, stored + static_cast<size_t>(chosen.rows[i]) * cols * 4, values + chosen.place(i) * cols * 2, cols);
}

void gather_rows(mv_dtype dtype, const std::byte* stored, size_t cols, const Chosen& chosen, std::byte* out) noexcept {
  if (!is_half(dtype)) return HWY_DYNAMIC_DISPATCH(gather_bytes)(cols * stored_bytes(dtype), stored, chosen, out);
  for (size_t i = 0; i < chosen.count; ++i)
    narrow_bytes(dtype, out + chosen.place(i) * cols * 2, stored + static_cast<size_t>(chosen.rows[i]) * cols * 4, cols);
}

}  // namespace mv::math
#endif  // HWY_ONCE
