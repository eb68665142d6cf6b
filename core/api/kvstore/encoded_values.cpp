#include "api/kvstore/encoded_values.hpp"

#include <algorithm>
#include <utility>

#include "codec/values.hpp"

namespace mv::kvstore {

using Content = tensor::Allocator::Content;

void Rooms::need(Use use, tensor::Device& device, size_t bytes) {
  if (bytes == 0) return;
  Room& room = rooms_[{use, &device}];
  room.bytes = std::max(room.bytes, bytes);
}

base::Status Rooms::allocate() {
  for (auto& [of, room] : rooms_) {
    auto made = of.second->allocate(room.bytes, Content::kAnything);
    if (!made.ok()) return made.status();
    room.block = std::move(made).value();
  }
  return {};
}

base::Status EncodedValues::prepare() {
  const uint64_t count = entry_.shape.count();
  const codec::Piece whole{0, count, 0};
  for (size_t sender = 0; sender < values_.size(); ++sender) {
    tensor::Device* const device = tensor::device_of(values_[sender]);
    const auto residual = entry_.residuals.beside(device, sender, entry_.residual_bytes());
    if (!residual.ok()) return residual.status();
    auto& encoding = encodings_.emplace_back();
    if (device == nullptr) continue;
    auto made = codec::DeviceEncoding::make(*device, codec_, entry_.dtype, {&whole, 1});
    if (!made.ok()) return made.status();
    encoding.emplace(std::move(made).value());
    rooms_.need(Rooms::kWide, *device, encoding->wide_bytes());
  }
  return {};
}

base::Status EncodedValues::prepare_sum(tensor::Device& device) {
  auto sum = tensor::make_dense(device, entry_.dtype, entry_.shape, Content::kAnything);
  if (!sum.ok()) return sum.status();
  sum_ = std::move(sum).value();
  if (entry_.dtype != MV_F32) rooms_.need(Rooms::kSum, device, entry_.residual_bytes());
  if (std::ranges::any_of(values_, [&](const Tensor& value) { return tensor::device_of(value) != &device; })) {
    here_.resize(codec_.encoded_bytes(entry_.shape.count()));
    rooms_.need(Rooms::kArrived, device, here_.size());
  }
  return prepare();
}

/// Of a value on a device.
base::Status EncodedValues::encode(size_t sender) {
  tensor::Device& device = *tensor::device_of(values_[sender]);
  const auto residual = entry_.residuals.on(device, sender, entry_.residual_bytes());
  return residual.ok() ? encodings_[sender]->run(values_[sender].data, residual.value(), rooms_.of(Rooms::kWide, device)) : residual.status();
}

base::Status EncodedValues::read(size_t sender, std::byte* out) {
  if (encodings_[sender]) {
    auto status = encode(sender);
    return status.ok() ? encodings_[sender]->read(out) : status;
  }
  const auto residual = entry_.residuals.of(sender, entry_.residual_bytes());
  if (!residual.ok()) return residual.status();
  codec::encode_values(codec_, entry_.dtype, values_[sender].data, residual.value(), entry_.shape.count(), out);
  return {};
}

base::Status EncodedValues::merge() {
  tensor::Device& device = *tensor::device_of(sum_);
  const uint64_t count = entry_.shape.count();
  const size_t bytes = codec_.encoded_bytes(count);
  auto* const floats = reinterpret_cast<float*>(entry_.dtype != MV_F32 ? rooms_.of(Rooms::kSum, device) : sum_.data);
  for (size_t sender = 0; sender < values_.size(); ++sender) {
    tensor::Device* const from = tensor::device_of(values_[sender]);
    std::byte* const arrived = rooms_.of(Rooms::kArrived, device);
    base::Status status = from == nullptr ? read(sender, here_.data()) : encode(sender);
    const std::byte* const encoded = from == &device ? encodings_[sender]->data() : arrived;
    if (status.ok() && from == nullptr) status = device.from_host(arrived, here_.data(), bytes);
    if (status.ok() && from != nullptr && from != &device) status = device.copy_from(*from, arrived, encodings_[sender]->data(), bytes);
    if (status.ok()) status = codec::codecs_of(device).decode(codec_, encoded, floats, count, sender > 0);
    if (!status.ok()) return status;
  }
  return entry_.dtype != MV_F32 ? device.cast(entry_.dtype, sum_.data, MV_F32, floats, count) : base::Status();
}

}  // namespace mv::kvstore
