#include "device/broadcast.hpp"

#include <algorithm>
#include <utility>

#include "tensor/dtype.hpp"

namespace mv::device {

void Broadcasts::add(const void* from, std::span<const tensor::Tensor> outs) {
  Array array{static_cast<const std::byte*>(from), {}, {}};
  for (const tensor::Tensor& out : outs) {
    const tensor::Device* const device = tensor::device_of(out);
    if (device == nullptr || device == &device_) continue;
    const auto same = std::ranges::find(array.outs, device, [](const tensor::Tensor* one) { return tensor::device_of(*one); });
    if (same == array.outs.end())
      array.outs.push_back(&out);
    else
      array.further.emplace_back(&out, *same);
    share_of(out);
  }
  if (!array.outs.empty()) arrays_.push_back(std::move(array));
}

Broadcasts::Share& Broadcasts::share_of(const tensor::Tensor& out) {
  auto& device = static_cast<TensorDevice&>(*tensor::device_of(out));
  const auto found = std::ranges::find_if(shares_, [&](const Share& share) { return &share.device == &device; });
  return found != shares_.end() ? *found : shares_.emplace_back(Share{device, device.current()});
}

bool Broadcasts::can_split(const Array& array) { return array.outs.size() > 1 && array.outs.front()->stored_bytes() >= Paths::kLeastBytes; }

void Broadcasts::list(const Array& array, Path path) {
  const size_t slices = path == Path::kByParts && can_split(array) ? array.outs.size() : 1;
  const size_t size = tensor::dtype_bytes(array.outs.front()->dtype), count = array.outs.front()->stored();
  for (size_t own = 0; own < array.outs.size(); ++own) {
    const tensor::Tensor& out = *array.outs[own];
    Share& share = share_of(out);
    Paths::for_each_slice(slices, count, [&](size_t i, size_t first, size_t some) {
      const size_t at = first * size, bytes = some * size;
      if (slices == 1 || i == own)
        share.first.copy(out.data + at, array.from + at, bytes, device_.number());
      else
        share.second.copy(out.data + at, array.outs[i]->data + at, bytes, tensor::device_of(*array.outs[i])->number());
    });
  }
  for (const auto& [out, same] : array.further) {
    Share& share = share_of(*out);
    (slices == 1 ? share.first : share.second).copy(out->data, same->data, out->stored_bytes(), share.device.number());
  }
}

base::Status Broadcasts::run() {
  if (arrays_.empty()) return {};
  size_t bytes = 0;
  for (const Array& array : arrays_)
    if (can_split(array)) bytes += array.outs.front()->stored_bytes();
  if (bytes == 0) return run(Path::kDirect);
  std::vector<const Stream*> streams{&stream_};
  for (const Share& share : shares_) streams.push_back(&share.stream);
  return device_.broadcast_paths().run(streams, bytes, [this](Path path) -> base::Result<Path> {
    if (auto status = run(path); !status.ok()) return status;
    return path;
  });
}

base::Status Broadcasts::run(Path path) {
  for (const Array& array : arrays_) list(array, path);
  base::Status status = begin();
  // After an error, too: some copies may have begun, and they use the memory of all.
  for (const Share& share : shares_)
    if (auto ordered = share.stream.order(stream_); status.ok()) status = ordered;
  if (std::ranges::any_of(shares_, [](const Share& share) { return share.second.size() > 0; }))
    for (const Share& share : shares_)
      if (auto ordered = stream_.order(share.stream); status.ok()) status = ordered;
  return status;
}

/// Puts the copies on the streams of their devices, whose earlier work may use the tensors.
base::Status Broadcasts::begin() {
  for (const Share& share : shares_)
    if (auto status = stream_.order(share.stream); !status.ok()) return status;
  bool is_split = false;
  for (Share& share : shares_) {
    is_split = is_split || share.second.size() > 0;
    if (auto status = share.device.graphs().run(share.stream, share.first); !status.ok()) return status;
  }
  if (!is_split) return {};
  for (const Share& share : shares_)
    if (auto status = share.stream.order(stream_); !status.ok()) return status;
  for (Share& share : shares_) {
    if (auto status = stream_.order(share.stream); !status.ok()) return status;
    if (auto status = share.device.graphs().run(share.stream, share.second); !status.ok()) return status;
  }
  return {};
}

}  // namespace mv::device
