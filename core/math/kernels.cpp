// Compiled once per instruction set: foreach_target.h includes this file again for each HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cassert>
#include <cstring>

#include "math/convert.hpp"
#include "math/kernels.hpp"
#include "math/lanes-inl.hpp"

#ifndef MV_MATH_KERNELS_CHOSEN
#define MV_MATH_KERNELS_CHOSEN
namespace mv::math {
namespace {

/// The selected rows of a table, and for each its row in the values or the output.
struct Chosen {
  const int64_t* rows;
  size_t count;
  const uint32_t* places;
  size_t place(size_t i) const { return places != nullptr ? places[i] : i; }
};

}  // namespace
}  // namespace mv::math
#endif

HWY_BEFORE_NAMESPACE();
namespace mv::math {
namespace HWY_NAMESPACE {

/// Adds one element, without alignment.
template <typename T>
HWY_INLINE void add_one(std::byte* dst, const std::byte* src) {
  T sum, addend;
  std::memcpy(&sum, dst, sizeof(T));
  std::memcpy(&addend, src, sizeof(T));
  sum = static_cast<T>(sum + addend);  // an integer T is unsigned, so overflow wraps
  std::memcpy(dst, &sum, sizeof(T));
}

template <typename T, class D>
HWY_INLINE void add_vector(D tag, T* dst, const T* src) {
  store(hn::Add(load(tag, dst), load(tag, src)), tag, dst);
}

template <typename T>
HWY_INLINE void add_range(std::byte* dst_bytes, const std::byte* src_bytes, size_t count) {
  const hn::ScalableTag<T> tag;
  const size_t lanes = hn::Lanes(tag);
  T* dst = reinterpret_cast<T*>(dst_bytes);
  const T* src = reinterpret_cast<const T*>(src_bytes);
  size_t i = 0;
  if (count >= 8 * lanes) {
    // A store that crosses a cache line costs twice. Unaligned loads matter less, so only dst is aligned.
    const size_t step = lanes * sizeof(T);
    const size_t off = reinterpret_cast<uintptr_t>(dst_bytes) % step;
    const size_t head = off % sizeof(T) == 0 ? (step - off) % step / sizeof(T) : 0;
    for (; i < head; ++i) add_one<T>(dst_bytes + i * sizeof(T), src_bytes + i * sizeof(T));
  }
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto a = hn::Add(hn::LoadU(tag, dst + i), hn::LoadU(tag, src + i));
    const auto b = hn::Add(hn::LoadU(tag, dst + i + lanes), hn::LoadU(tag, src + i + lanes));
    const auto c = hn::Add(hn::LoadU(tag, dst + i + 2 * lanes), hn::LoadU(tag, src + i + 2 * lanes));
    const auto d = hn::Add(hn::LoadU(tag, dst + i + 3 * lanes), hn::LoadU(tag, src + i + 3 * lanes));
    hn::StoreU(a, tag, dst + i);
    hn::StoreU(b, tag, dst + i + lanes);
    hn::StoreU(c, tag, dst + i + 2 * lanes);
    hn::StoreU(d, tag, dst + i + 3 * lanes);
  }
  for (; i + lanes <= count; i += lanes) add_vector(tag, dst + i, src + i);
  over_rest<T, hn::MaxLanes(tag) / 2>(count, i,
                                      [&](auto rest, size_t at) HWY_ATTR { add_vector(rest, dst + at, src + at); });
}

/// Adds halves to floats.
template <mv_dtype kHalf>
HWY_INLINE void add_halves(std::byte* dst_bytes, const std::byte* src_bytes, size_t count) {
  auto* dst = reinterpret_cast<float*>(dst_bytes);
  const auto* src = reinterpret_cast<const uint16_t*>(src_bytes);
  over_lanes<float>(count, [&](auto tag, size_t i) HWY_ATTR {
    store(hn::Add(load(tag, dst + i), widen<kHalf>(tag, src + i)), tag, dst + i);
  });
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
    Bits value;
    std::memcpy(&value, bytes + i * sizeof(Bits), sizeof(Bits));
    if ((value & exponent_mask) == exponent_mask) return false;
  }
  return true;
}

void add_f32(std::byte* dst, const std::byte* src, size_t count) { add_range<float>(dst, src, count); }
void add_f64(std::byte* dst, const std::byte* src, size_t count) { add_range<double>(dst, src, count); }
void add_i32(std::byte* dst, const std::byte* src, size_t count) { add_range<uint32_t>(dst, src, count); }
void add_i64(std::byte* dst, const std::byte* src, size_t count) { add_range<uint64_t>(dst, src, count); }
void add_u8(std::byte* dst, const std::byte* src, size_t count) { add_range<uint8_t>(dst, src, count); }
void add_f16(std::byte* dst, const std::byte* src, size_t count) { add_halves<MV_F16>(dst, src, count); }
void add_bf16(std::byte* dst, const std::byte* src, size_t count) { add_halves<MV_BF16>(dst, src, count); }

bool finite_f32(const std::byte* values, size_t count) { return finite_range<uint32_t>(values, count, 0x7f800000); }
bool finite_f64(const std::byte* values, size_t count) {
  return finite_range<uint64_t>(values, count, 0x7ff0000000000000);
}
bool finite_f16(const std::byte* values, size_t count) { return finite_range<uint16_t>(values, count, 0x7c00); }
bool finite_bf16(const std::byte* values, size_t count) { return finite_range<uint16_t>(values, count, 0x7f80); }

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
  for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at, kWrite);
  __builtin_prefetch(row + bytes - 1, kWrite);  // an unaligned row ends in one more line
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
  const size_t row_bytes = cols * sizeof(T);
  over_rows<true>(table, row_bytes, chosen, [&](std::byte* row, size_t i) HWY_ATTR {
    if (cols == 1) return add_one<T>(row, values + i * sizeof(T));  // elements of an array
    add_range<T>(row, values + i * row_bytes, cols);
  });
}

template <mv_dtype kHalf>
HWY_INLINE void add_each_half_row(std::byte* table, size_t cols, const Chosen& chosen, const std::byte* values) {
  over_rows<true>(table, cols * sizeof(float), chosen, [&](std::byte* row, size_t i) HWY_ATTR {
    add_halves<kHalf>(row, values + i * cols * sizeof(uint16_t), cols);
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

void add_rows_f32(std::byte* table, size_t cols, const Chosen& chosen, const std::byte* values) {
  add_each_row<float>(table, cols, chosen, values);
}
void add_rows_f64(std::byte* table, size_t cols, const Chosen& chosen, const std::byte* values) {
  add_each_row<double>(table, cols, chosen, values);
}
void add_rows_i32(std::byte* table, size_t cols, const Chosen& chosen, const std::byte* values) {
  add_each_row<uint32_t>(table, cols, chosen, values);
}
void add_rows_i64(std::byte* table, size_t cols, const Chosen& chosen, const std::byte* values) {
  add_each_row<uint64_t>(table, cols, chosen, values);
}
void add_rows_u8(std::byte* table, size_t cols, const Chosen& chosen, const std::byte* values) {
  add_each_row<uint8_t>(table, cols, chosen, values);
}
void add_rows_f16(std::byte* table, size_t cols, const Chosen& chosen, const std::byte* values) {
  add_each_half_row<MV_F16>(table, cols, chosen, values);
}
void add_rows_bf16(std::byte* table, size_t cols, const Chosen& chosen, const std::byte* values) {
  add_each_half_row<MV_BF16>(table, cols, chosen, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace mv::math
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
namespace {

HWY_EXPORT(add_f32);
HWY_EXPORT(add_f64);
HWY_EXPORT(add_i32);
HWY_EXPORT(add_i64);
HWY_EXPORT(add_u8);
HWY_EXPORT(add_f16);
HWY_EXPORT(add_bf16);
HWY_EXPORT(finite_f32);
HWY_EXPORT(finite_f64);
HWY_EXPORT(finite_f16);
HWY_EXPORT(finite_bf16);
HWY_EXPORT(add_rows_f32);
HWY_EXPORT(add_rows_f64);
HWY_EXPORT(add_rows_i32);
HWY_EXPORT(add_rows_i64);
HWY_EXPORT(add_rows_u8);
HWY_EXPORT(add_rows_f16);
HWY_EXPORT(add_rows_bf16);
HWY_EXPORT(increasing);
HWY_EXPORT(gather_bytes);
HWY_EXPORT(set_bytes);

bool is_half(mv_dtype dtype) { return dtype == MV_F16 || dtype == MV_BF16; }

size_t stored_bytes(mv_dtype dtype) {
  switch (dtype) {
    case MV_U8:
    case MV_I8:
      return 1;
    case MV_F64:
    case MV_I64:
      return 8;
    default:
      return 4;
  }
}

}  // namespace

void add(std::span<float> dst, std::span<const float> src) noexcept {
  assert(dst.size() == src.size());
  add_bytes(MV_F32, std::as_writable_bytes(dst).data(), std::as_bytes(src).data(), src.size());
}

void add(std::span<double> dst, std::span<const double> src) noexcept {
  assert(dst.size() == src.size());
  add_bytes(MV_F64, std::as_writable_bytes(dst).data(), std::as_bytes(src).data(), src.size());
}

bool all_finite(std::span<const float> values) noexcept {
  return all_finite_bytes(MV_F32, std::as_bytes(values).data(), values.size());
}

bool all_finite(std::span<const double> values) noexcept {
  return all_finite_bytes(MV_F64, std::as_bytes(values).data(), values.size());
}

void add_bytes(mv_dtype dtype, std::byte* stored, const std::byte* src, size_t count) noexcept {
  switch (dtype) {
    case MV_F32:
      return HWY_DYNAMIC_DISPATCH(add_f32)(stored, src, count);
    case MV_F64:
      return HWY_DYNAMIC_DISPATCH(add_f64)(stored, src, count);
    case MV_I32:
      return HWY_DYNAMIC_DISPATCH(add_i32)(stored, src, count);
    case MV_I64:
      return HWY_DYNAMIC_DISPATCH(add_i64)(stored, src, count);
    case MV_U8:
    case MV_I8:
      return HWY_DYNAMIC_DISPATCH(add_u8)(stored, src, count);
    case MV_F16:
      return HWY_DYNAMIC_DISPATCH(add_f16)(stored, src, count);
    case MV_BF16:
      return HWY_DYNAMIC_DISPATCH(add_bf16)(stored, src, count);
    default:
      assert(false);
  }
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
  switch (dtype) {
    case MV_F32:
      return HWY_DYNAMIC_DISPATCH(finite_f32)(values, count);
    case MV_F64:
      return HWY_DYNAMIC_DISPATCH(finite_f64)(values, count);
    case MV_F16:
      return HWY_DYNAMIC_DISPATCH(finite_f16)(values, count);
    case MV_BF16:
      return HWY_DYNAMIC_DISPATCH(finite_bf16)(values, count);
    default:
      return true;
  }
}

bool strictly_increasing(std::span<const int64_t> rows) noexcept {
  return HWY_DYNAMIC_DISPATCH(increasing)(rows.data(), rows.size());
}

void add_rows(mv_dtype dtype, std::byte* stored, size_t cols, const int64_t* rows, size_t row_count,
              const std::byte* values, const uint32_t* places) noexcept {
  const Chosen chosen{rows, row_count, places};
  switch (dtype) {
    case MV_F32:
      return HWY_DYNAMIC_DISPATCH(add_rows_f32)(stored, cols, chosen, values);
    case MV_F64:
      return HWY_DYNAMIC_DISPATCH(add_rows_f64)(stored, cols, chosen, values);
    case MV_I32:
      return HWY_DYNAMIC_DISPATCH(add_rows_i32)(stored, cols, chosen, values);
    case MV_I64:
      return HWY_DYNAMIC_DISPATCH(add_rows_i64)(stored, cols, chosen, values);
    case MV_U8:
    case MV_I8:
      return HWY_DYNAMIC_DISPATCH(add_rows_u8)(stored, cols, chosen, values);
    case MV_F16:
      return HWY_DYNAMIC_DISPATCH(add_rows_f16)(stored, cols, chosen, values);
    case MV_BF16:
      return HWY_DYNAMIC_DISPATCH(add_rows_bf16)(stored, cols, chosen, values);
    default:
      assert(false);
  }
}

void set_rows(mv_dtype dtype, std::byte* stored, size_t cols, const int64_t* rows, size_t row_count,
              const std::byte* values, const uint32_t* places) noexcept {
  const Chosen chosen{rows, row_count, places};
  if (!is_half(dtype)) return HWY_DYNAMIC_DISPATCH(set_bytes)(cols * stored_bytes(dtype), stored, chosen, values);
  for (size_t i = 0; i < row_count; ++i)
    widen_bytes(dtype, stored + static_cast<size_t>(rows[i]) * cols * 4, values + chosen.place(i) * cols * 2, cols);
}

void gather_rows(mv_dtype dtype, const std::byte* stored, size_t cols, const int64_t* rows, size_t row_count,
                 std::byte* out, const uint32_t* places) noexcept {
  const Chosen chosen{rows, row_count, places};
  if (!is_half(dtype)) return HWY_DYNAMIC_DISPATCH(gather_bytes)(cols * stored_bytes(dtype), stored, chosen, out);
  for (size_t i = 0; i < row_count; ++i)
    narrow_bytes(dtype, out + chosen.place(i) * cols * 2, stored + static_cast<size_t>(rows[i]) * cols * 4, cols);
}

}  // namespace mv::math
#endif  // HWY_ONCE
