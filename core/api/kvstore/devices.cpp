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

/// Memory for copies of tensors on the host, all allocated before the first copy begins. Small tensors share a block: alone, their memory would not
/// be fast, and a copy to it would wait for all earlier work of the device.
class StagingMemory {
 public:
  void need(const Tensor& value) {
    if (is_small(value))
      small_[tensor::device_of(value)].bytes += part_of(value);
    else
      large_.emplace_back(tensor::device_of(value), value.stored_bytes());
  }
  base::Status allocate() {
    constexpr auto kContent = tensor::Allocator::Content::kAnything;
    for (auto& [device, small] : small_) {
      auto block = device->staging().allocate(std::max(small.bytes, tensor::Device::kFastStaging), kContent);
      if (!block.ok()) return block.status();
      small.block = std::move(block).value();
    }
    for (const auto& [device, bytes] : large_) {
      auto block = device->staging().allocate(bytes, kContent);
      if (!block.ok()) return block.status();
      blocks_.push_back(std::move(block).value());
    }
    return {};
  }
  /// In the order of need().
  std::pair<std::shared_ptr<tensor::Block>, std::byte*> take(const Tensor& value) {
    if (!is_small(value)) {
      std::shared_ptr<tensor::Block> block = std::move(blocks_.front());
      blocks_.pop_front();
      std::byte* const data = block->data();
      return {std::move(block), data};
    }
    Small& small = small_[tensor::device_of(value)];
    return {small.block, small.block->data() + std::exchange(small.taken, small.taken + part_of(value))};
  }

 private:
  struct Small {
    size_t bytes = 0, taken = 0;
    std::shared_ptr<tensor::Block> block;
  };
  static bool is_small(const Tensor& value) { return value.stored_bytes() < tensor::Device::kFastStaging; }
  static size_t part_of(const Tensor& value) {
    constexpr size_t kAligned = 64;
    return (value.stored_bytes() + kAligned - 1) / kAligned * kAligned;
  }
  std::map<tensor::Device*, Small> small_;
  std::vector<std::pair<tensor::Device*, size_t>> large_;
  std::deque<std::shared_ptr<tensor::Block>> blocks_;
};

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
  std::vector<std::pair<size_t, std::vector<Tensor>*>> to_host;
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
    to_host.emplace_back(key, &made);
  }
  if (auto status = placed.copy_to_host(to_host); !status.ok()) return status;
  return placed;
}

/// Begins all copies, in the order of the keys.
base::Status PlacedValues::copy_to_host(const std::vector<std::pair<size_t, std::vector<Tensor>*>>& keys) {
  StagingMemory memory;
  for (const auto& [key, values] : keys)
    for (const Tensor& value : *values)
      if (is_on_device(value)) memory.need(value);
  if (auto status = memory.allocate(); !status.ok()) return status;
  for (const auto& [key, values] : keys) {
    std::vector<std::unique_ptr<tensor::Arrival>>& arrivals = arrivals_[key];
    arrivals.reserve(values->size());
    for (Tensor& value : *values) {
      if (!is_on_device(value)) continue;
      auto [block, to] = memory.take(value);
      auto arrival = tensor::begin_on_host(value, std::move(block), to);
      if (!arrival.ok()) return arrival.status();
      arrivals.push_back(std::move(arrival).value());
    }
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
