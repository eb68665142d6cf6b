#include "tensor/cast.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "math/convert.hpp"
#include "tensor/cast-inl.hpp"
#include "tensor/device.hpp"

namespace mv::tensor {

namespace {

using both::convert, both::round_to_odd, both::upper_bits;

template <typename To, typename From>
void convert_all(std::byte* dst, const std::byte* src, size_t count) {
  To* to = reinterpret_cast<To*>(dst);
  const From* from = reinterpret_cast<const From*>(src);
  for (size_t i = 0; i < count; ++i) to[i] = convert<To>(from[i]);
}

template <typename To>
void convert_from(std::byte* dst, mv_dtype from, const std::byte* src, size_t count) {
  math::with_number(from, [&](auto type) { convert_all<To, decltype(type)>(dst, src, count); });
}

/// For at most one chunk.
void convert_to_half(mv_dtype to, std::byte* dst, mv_dtype from, const std::byte* src, size_t count) {
  float floats[kChunk];
  if (from == MV_F32) return math::narrow_bytes(to, dst, src, count);
  if (from == MV_I64) {
    const auto* values = reinterpret_cast<const int64_t*>(src);
    for (size_t i = 0; i < count; ++i) floats[i] = round_to_odd(upper_bits(values[i]));
  } else {
    Chunk doubles;
    const std::byte* at = src;
    if (from != MV_F64) convert_from<double>(doubles.bytes, from, src, count);
    if (from != MV_F64) at = doubles.bytes;
    for (size_t i = 0; i < count; ++i) floats[i] = round_to_odd(reinterpret_cast<const double*>(at)[i]);
  }
  math::narrow_bytes(to, dst, reinterpret_cast<const std::byte*>(floats), count);
}

void convert_chunk(mv_dtype to, std::byte* dst, mv_dtype from, const std::byte* src, size_t count) {
  Chunk floats;
  if (math::is_half(from)) {
    math::widen_bytes(from, to == MV_F32 ? dst : floats.bytes, src, count);
    if (to == MV_F32) return;
    src = floats.bytes;
    from = MV_F32;
  }
  if (math::is_half(to)) return convert_to_half(to, dst, from, src, count);
  math::with_number(to, [&](auto type) { convert_from<decltype(type)>(dst, from, src, count); });
}

}  // namespace

void cast_elements(mv_dtype to, std::byte* dst, mv_dtype from, const std::byte* src, size_t count) {
  if (to == from) {
    if (count > 0 && dst != src) std::memcpy(dst, src, count * dtype_bytes(to));
    return;
  }
  for (size_t i = 0; i < count; i += kChunk) {
    convert_chunk(to, dst + i * dtype_bytes(to), from, src + i * dtype_bytes(from), std::min(kChunk, count - i));
  }
}

void store_element(mv_dtype dtype, std::byte* at, double value) {
  cast_elements(dtype, at, MV_F64, reinterpret_cast<const std::byte*>(&value), 1);
}

double load_element(mv_dtype dtype, const std::byte* at) {
  double value = 0;
  cast_elements(MV_F64, reinterpret_cast<std::byte*>(&value), dtype, at, 1);
  return value;
}

mv_dtype common_dtype(mv_dtype a, mv_dtype b) {
  if (a == b) return a;
  if (is_floating(a) && is_floating(b)) return a == MV_F64 || b == MV_F64 ? MV_F64 : MV_F32;
  if (!is_floating(a) && !is_floating(b)) return a == MV_I64 || b == MV_I64 ? MV_I64 : MV_I32;
  const auto [floating, integer] = is_floating(a) ? std::pair(a, b) : std::pair(b, a);
  return dtype_bytes(integer) == 1 ? floating : MV_F64;
}

base::Result<Tensor> cast(const char* function, Heap& heap, const Tensor& tensor, mv_dtype dtype) {
  if (auto status = check_dtype(function, dtype); !status.ok()) return status;
  auto made = make_dense(home_of(tensor, heap), dtype, tensor.stored_shape(), Heap::Content::kAnything);
  if (!made.ok()) return made;
  if (Device* const device = device_of(tensor); device != nullptr) {
    if (auto status = device->cast(dtype, made.value().data, tensor.dtype, tensor.data, tensor.stored()); !status.ok()) return status;
  } else {
    cast_elements(dtype, made.value().data, tensor.dtype, tensor.data, tensor.stored());
  }
  made.value().shape = tensor.shape;
  made.value().held = tensor.held;
  return made;
}

}  // namespace mv::tensor
