#include "kvstore/devices.hpp"

#include <algorithm>
#include <vector>

#include "math/convert.hpp"
#include "math/kernels.hpp"

namespace mv::kvstore {

namespace {
/// Elements whose sum stays in the cache while the devices' values are added to it.
constexpr size_t kPiece = 16384;
}  // namespace

void sum_devices(std::span<const tensor::Tensor> values, std::byte* out) {
  const mv_dtype dtype = values.front().dtype, storage = tensor::storage_dtype(dtype);
  const size_t each = tensor::dtype_bytes(dtype), count = values.front().shape.count();
  std::vector<std::byte> wide(storage == dtype ? 0 : kPiece * tensor::dtype_bytes(storage));
  for (size_t from = 0; from < count; from += kPiece) {
    const size_t some = std::min(kPiece, count - from);
    std::byte* const to = out + from * each;
    std::byte* const sum = wide.empty() ? to : wide.data();
    math::store_bytes(dtype, sum, values.front().data + from * each, some);
    for (const tensor::Tensor& value : values.subspan(1)) math::add_bytes(dtype, sum, value.data + from * each, some);
    if (!wide.empty()) math::narrow_bytes(dtype, to, sum, some);
  }
}

}  // namespace mv::kvstore
