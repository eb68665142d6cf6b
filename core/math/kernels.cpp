// Compiled once for every instruction set: foreach_target.h includes this file again and again with another HWY_TARGET.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "math/kernels.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <cassert>
#include <cstring>

#include "math/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// One element, wherever it lies.
template <typename T>
HWY_INLINE void add_one(std::byte* dst, const std::byte* src) {
  T sum, addend;
  std::memcpy(&sum, dst, sizeof(T));
  std::memcpy(&addend, src, sizeof(T));
  sum += addend;
  std::memcpy(dst, &sum, sizeof(T));
}

template <typename T>
HWY_INLINE void add_range(std::byte* dst_bytes, const std::byte* src_bytes, size_t count) {
  const hn::ScalableTag<T> tag;
  const size_t lanes = hn::Lanes(tag);
  T* dst = reinterpret_cast<T*>(dst_bytes);
  const T* src = reinterpret_cast<const T*>(src_bytes);
  size_t i = 0;
  if (count >= 8 * lanes) {
    // A store that crosses a cache line costs twice. Unaligned loads matter less, so only dst is brought into step.
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
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(tag, dst + i), hn::LoadU(tag, src + i)), tag, dst + i);
  }
  for (; i < count; ++i) add_one<T>(dst_bytes + i * sizeof(T), src_bytes + i * sizeof(T));
}

template <typename T>
HWY_INLINE bool finite_range(const std::byte* bytes, size_t count) {
  using Bits = hwy::MakeUnsigned<T>;
  const hn::ScalableTag<Bits> tag;
  const size_t lanes = hn::Lanes(tag);
  const Bits kExponent = hwy::ExponentMask<T>();  // all ones in NaN and infinity, and in nothing else
  const auto exponent = hn::Set(tag, kExponent);
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
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    if ((value & kExponent) == kExponent) return false;
  }
  return true;
}

template <typename T>
HWY_INLINE void add_each_row(std::byte* table, size_t cols, const int64_t* rows, size_t row_count,
                             const std::byte* values) {
  const size_t row_bytes = cols * sizeof(T);
  if (cols == 1) {  // elements of an array
    for (size_t i = 0; i < row_count; ++i)
      add_one<T>(table + static_cast<size_t>(rows[i]) * sizeof(T), values + i * sizeof(T));
    return;
  }
  for (size_t i = 0; i < row_count; ++i) {
    add_range<T>(table + static_cast<size_t>(rows[i]) * row_bytes, values + i * row_bytes, cols);
  }
}

void add_f32(std::byte* dst, const std::byte* src, size_t count) { add_range<float>(dst, src, count); }
void add_f64(std::byte* dst, const std::byte* src, size_t count) { add_range<double>(dst, src, count); }
bool finite_f32(const std::byte* values, size_t count) { return finite_range<float>(values, count); }
bool finite_f64(const std::byte* values, size_t count) { return finite_range<double>(values, count); }
void add_rows_f32(std::byte* table, size_t cols, const int64_t* rows, size_t row_count, const std::byte* values) {
  add_each_row<float>(table, cols, rows, row_count, values);
}
void add_rows_f64(std::byte* table, size_t cols, const int64_t* rows, size_t row_count, const std::byte* values) {
  add_each_row<double>(table, cols, rows, row_count, values);
}

}  // namespace HWY_NAMESPACE
}  // namespace mv::math
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::math {
namespace {

HWY_EXPORT(add_f32);
HWY_EXPORT(add_f64);
HWY_EXPORT(finite_f32);
HWY_EXPORT(finite_f64);
HWY_EXPORT(add_rows_f32);
HWY_EXPORT(add_rows_f64);

/// Rows whose size the compiler knows: a copy is then one load and one store.
template <size_t kBytes>
void set_fixed_rows(std::byte* table, const int64_t* rows, size_t row_count, const std::byte* values) noexcept {
  for (size_t i = 0; i < row_count; ++i) {
    std::memcpy(table + static_cast<size_t>(rows[i]) * kBytes, values + i * kBytes, kBytes);
  }
}

template <size_t kBytes>
void gather_fixed_rows(const std::byte* table, const int64_t* rows, size_t row_count, std::byte* out) noexcept {
  for (size_t i = 0; i < row_count; ++i) {
    std::memcpy(out + i * kBytes, table + static_cast<size_t>(rows[i]) * kBytes, kBytes);
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

void add_bytes(mv_dtype dtype, std::byte* dst, const std::byte* src, size_t count) noexcept {
  assert(dtype == MV_F32 || dtype == MV_F64);
  if (dtype == MV_F32) {
    HWY_DYNAMIC_DISPATCH(add_f32)(dst, src, count);
  } else {
    HWY_DYNAMIC_DISPATCH(add_f64)(dst, src, count);
  }
}

bool all_finite_bytes(mv_dtype dtype, const std::byte* values, size_t count) noexcept {
  assert(dtype == MV_F32 || dtype == MV_F64);
  return dtype == MV_F32 ? HWY_DYNAMIC_DISPATCH(finite_f32)(values, count)
                         : HWY_DYNAMIC_DISPATCH(finite_f64)(values, count);
}

void add_rows(mv_dtype dtype, std::byte* table, size_t cols, const int64_t* rows, size_t row_count,
              const std::byte* values) noexcept {
  assert(dtype == MV_F32 || dtype == MV_F64);
  if (dtype == MV_F32) {
    HWY_DYNAMIC_DISPATCH(add_rows_f32)(table, cols, rows, row_count, values);
  } else {
    HWY_DYNAMIC_DISPATCH(add_rows_f64)(table, cols, rows, row_count, values);
  }
}

void set_rows(size_t row_bytes, std::byte* table, const int64_t* rows, size_t row_count,
              const std::byte* values) noexcept {
  if (row_bytes == 4) return set_fixed_rows<4>(table, rows, row_count, values);
  if (row_bytes == 8) return set_fixed_rows<8>(table, rows, row_count, values);
  for (size_t i = 0; i < row_count; ++i) {
    std::memcpy(table + static_cast<size_t>(rows[i]) * row_bytes, values + i * row_bytes, row_bytes);
  }
}

void gather_rows(size_t row_bytes, const std::byte* table, const int64_t* rows, size_t row_count,
                 std::byte* out) noexcept {
  if (row_bytes == 4) return gather_fixed_rows<4>(table, rows, row_count, out);
  if (row_bytes == 8) return gather_fixed_rows<8>(table, rows, row_count, out);
  for (size_t i = 0; i < row_count; ++i) {
    std::memcpy(out + i * row_bytes, table + static_cast<size_t>(rows[i]) * row_bytes, row_bytes);
  }
}

}  // namespace mv::math
#endif  // HWY_ONCE
