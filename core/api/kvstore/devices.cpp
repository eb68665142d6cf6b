#include "api/kvstore/devices.hpp"

#include <vector>

#include "math/reduction.hpp"

namespace mv::kvstore {

void sum_devices(std::span<const tensor::Tensor> values, uint64_t first, size_t count, std::byte* out) {
  const mv_dtype dtype = values.front().dtype;
  std::vector<const std::byte*> from;
  from.reserve(values.size());
  for (const tensor::Tensor& value : values) from.push_back(value.data + first * tensor::dtype_bytes(dtype));
  math::merge_bytes(math::Reduction::kSum, dtype, out, from, count);
}

void sum_devices(std::span<const tensor::Tensor> values, std::byte* out) {
  sum_devices(values, 0, values.front().shape.count(), out);
}

}  // namespace mv::kvstore
