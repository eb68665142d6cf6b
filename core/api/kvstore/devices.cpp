#include "api/kvstore/devices.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "math/convert.hpp"
#include "math/kernels.hpp"
#include "math/sum.hpp"

namespace mv::kvstore {

namespace {

/// Number of 16-bit floats whose sum stays in the cache while the devices' values are added to it.
constexpr size_t kPiece = 4096;

void sum_halves(std::span<const tensor::Tensor> values, uint64_t first, size_t count, std::byte* out) {
  const mv_dtype dtype = values.front().dtype;
  const size_t each = tensor::dtype_bytes(dtype);
  alignas(64) std::array<float, kPiece> wide;
  auto* const sum = reinterpret_cast<std::byte*>(wide.data());
  for (size_t done = 0; done < count; done += kPiece) {
    const size_t some = std::min(kPiece, count - done), from = (first + done) * each;
    math::store_bytes(dtype, sum, values.front().data + from, some);
    for (const tensor::Tensor& value : values.subspan(1)) math::add_bytes(dtype, sum, value.data + from, some);
    math::narrow_bytes(dtype, out + done * each, sum, some);
  }
}

}  // namespace

void sum_devices(std::span<const tensor::Tensor> values, uint64_t first, size_t count, std::byte* out) {
  const mv_dtype dtype = values.front().dtype;
  if (tensor::storage_dtype(dtype) != dtype) return sum_halves(values, first, count, out);
  std::vector<const std::byte*> from;
  from.reserve(values.size());
  for (const tensor::Tensor& value : values) from.push_back(value.data + first * tensor::dtype_bytes(dtype));
  math::sum_bytes(dtype, out, from, count);
}

void sum_devices(std::span<const tensor::Tensor> values, std::byte* out) {
  sum_devices(values, 0, values.front().shape.count(), out);
}

}  // namespace mv::kvstore
