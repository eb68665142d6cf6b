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

tensor::Device* any_device(std::span<const Tensor> values) {
  const auto found = std::ranges::find_if(values, is_on_device);
  return found != values.end() ? tensor::device_of(*found) : nullptr;
}

bool any_on_device(const Values& values) {
  return std::ranges::any_of(values, [](std::span<const Tensor> some) { return any_device(some) != nullptr; });
}

base::Result<PlacedValues> PlacedValues::make(const Values& values, const std::function<Place(size_t key)>& place_of) {
  PlacedValues placed(values);
  placed.placed_ = values;
  for (size_t key = 0; key < values.size(); ++key) {
    std::span<const Tensor>& some = placed.placed_[key];
    const Place place = place_of(key);
    if (place == Place::kGiven || std::ranges::none_of(some, is_on_device)) continue;
    std::vector<Tensor>& made = placed.copies_.emplace_back();
    const bool can_sum = is_on_device(some.front()) && std::ranges::none_of(some, &Tensor::is_row_sparse);
    if (place != Place::kHost && can_sum) {
      auto sum = some.size() > 1 ? sum_there(some) : base::Result<Tensor>(some.front());
      if (!sum.ok()) return sum.status();
      made.push_back(std::move(sum).value());
    } else {
      made.assign(some.begin(), some.end());
    }
    some = made;
    if (place == Place::kSum && can_sum) continue;
    if (auto status = placed.copy_to_host(key, made); !status.ok()) return status;
  }
  return placed;
}

base::Status PlacedValues::copy_to_host(size_t key, std::vector<Tensor>& values) {
  std::vector<std::unique_ptr<tensor::Arrival>>& arrivals = arrivals_[key];
  arrivals.reserve(values.size());
  for (Tensor& one : values) {
    if (!is_on_device(one)) continue;
    std::unique_ptr<tensor::Arrival> arrival;
    auto copy = tensor::begin_on_host(one, &arrival);
    if (!copy.ok()) return copy.status();
    one = std::move(copy).value();  // if that frees a sum, then after the copy, in the order of the device's work
    arrivals.push_back(std::move(arrival));
  }
  return {};
}

base::Status PlacedValues::arrive(size_t key) {
  const auto found = arrivals_.find(key);
  if (found == arrivals_.end()) return {};
  for (const auto& arrival : found->second)
    if (auto status = arrival->wait(); !status.ok()) return status;
  arrivals_.erase(found);
  return {};
}

base::Status PlacedValues::arrive() {
  while (!arrivals_.empty())
    if (auto status = arrive(arrivals_.begin()->first); !status.ok()) return status;
  return {};
}

}  // namespace mv::kvstore
