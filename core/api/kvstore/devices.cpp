#include "api/kvstore/devices.hpp"

#include <algorithm>
#include <utility>

#include "math/reduction.hpp"

namespace mv::kvstore {

namespace {

bool is_on_device(const Tensor& value) { return tensor::device_of(value) != nullptr; }

/// The sum of dense tensors, on the device of the first one.
base::Result<Tensor> sum_there(std::span<const Tensor> values) {
  const Tensor& first = values.front();
  tensor::Device& device = *tensor::device_of(first);
  auto sum = tensor::make_dense(device, first.dtype, first.shape, tensor::Allocator::Content::kAnything);
  if (!sum.ok()) return sum;
  auto status = device.merge(sum.value(), values);
  return status.ok() ? std::move(sum) : base::Result<Tensor>(std::move(status));
}

}  // namespace

void sum_devices(std::span<const Tensor> values, uint64_t first, size_t count, std::byte* out) {
  const mv_dtype dtype = values.front().dtype;
  std::vector<const std::byte*> from;
  from.reserve(values.size());
  for (const Tensor& value : values) from.push_back(value.data + first * tensor::dtype_bytes(dtype));
  math::merge_bytes(math::Reduction::kSum, dtype, out, from, count);
}

void sum_devices(std::span<const Tensor> values, std::byte* out) {
  sum_devices(values, 0, values.front().shape.count(), out);
}

bool any_on_device(const Values& values) {
  return std::ranges::any_of(values, [](std::span<const Tensor> some) { return std::ranges::any_of(some, is_on_device); });
}

base::Result<HostValues> HostValues::make(const Values& values, const std::function<bool(size_t key)>& stays, Sum sum) {
  HostValues host;
  host.values_ = values;
  for (size_t key = 0; key < values.size(); ++key) {
    std::span<const Tensor>& some = host.values_[key];
    if (stays(key) || std::ranges::none_of(some, is_on_device)) continue;
    std::vector<Tensor>& copies = host.copies_.emplace_back();
    const bool are_summed = sum == Sum::kOnDevices && some.size() > 1 && is_on_device(some.front()) && std::ranges::none_of(some, &Tensor::is_row_sparse);
    auto merged = are_summed ? sum_there(some) : base::Result<Tensor>(some.front());
    if (!merged.ok()) return merged.status();
    for (const Tensor& one : are_summed ? std::span<const Tensor>(&merged.value(), 1) : some) {
      auto copy = tensor::on_host(one);
      if (!copy.ok()) return copy.status();
      copies.push_back(std::move(copy).value());
    }
    some = copies;
  }
  return host;
}

}  // namespace mv::kvstore
