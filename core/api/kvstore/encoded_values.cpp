#include "api/kvstore/encoded_values.hpp"

#include <algorithm>
#include <utility>

#include "codec/values.hpp"

namespace mv::kvstore {

using Content = tensor::Allocator::Content;

base::Status EncodedValues::prepare() {
  const uint64_t count = entry_.shape.count();
  const size_t bytes = entry_.residual_bytes();
  const codec::Piece whole{0, count, 0};
  for (size_t sender = 0; sender < values_.size(); ++sender) {
    tensor::Device* const device = tensor::device_of(values_[sender]);
    const auto residual = device != nullptr ? entry_.residuals.on(*device, sender, bytes) : entry_.residuals.of(sender, bytes);
    if (!residual.ok()) return residual.status();
    auto& encoding = encodings_.emplace_back();
    if (device == nullptr) continue;
    auto made = codec::DeviceEncoding::make(*device, codec_, entry_.dtype, count, {&whole, 1});
    if (!made.ok()) return made.status();
    encoding.emplace(std::move(made).value());
  }
  return {};
}

base::Status EncodedValues::prepare_sum(tensor::Device& device) {
  auto sum = tensor::make_dense(device, entry_.dtype, entry_.shape, Content::kAnything);
  if (!sum.ok()) return sum.status();
  sum_ = std::move(sum).value();
  if (entry_.dtype != MV_F32) {
    auto floats = device.allocate(entry_.residual_bytes(), Content::kAnything);
    if (!floats.ok()) return floats.status();
    floats_ = std::move(floats).value();
  }
  if (std::ranges::any_of(values_, [&](const Tensor& value) { return tensor::device_of(value) != &device; })) {
    here_.resize(codec_.encoded_bytes(entry_.shape.count()));
    auto room = device.allocate(here_.size(), Content::kAnything);
    if (!room.ok()) return room.status();
    arrived_ = std::move(room).value();
  }
  return prepare();
}

/// Of a value on a device.
base::Status EncodedValues::encode(size_t sender) {
  const auto residual = entry_.residuals.on(*tensor::device_of(values_[sender]), sender, entry_.residual_bytes());
  return residual.ok() ? encodings_[sender]->run(values_[sender].data, residual.value()) : residual.status();
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
  auto* const floats = reinterpret_cast<float*>(floats_ != nullptr ? floats_->data() : sum_.data);
  for (size_t sender = 0; sender < values_.size(); ++sender) {
    tensor::Device* const from = tensor::device_of(values_[sender]);
    const std::byte* encoded = nullptr;
    if (from == nullptr) {
      if (auto status = read(sender, here_.data()); !status.ok()) return status;
      if (auto status = device.from_host(arrived_->data(), here_.data(), bytes); !status.ok()) return status;
      encoded = arrived_->data();
    } else {
      if (auto status = encode(sender); !status.ok()) return status;
      encoded = encodings_[sender]->data();
      if (from != &device) {
        if (auto status = device.copy_from(*from, arrived_->data(), encoded, bytes); !status.ok()) return status;
        encoded = arrived_->data();
      }
    }
    if (auto status = codec::codecs_of(device).decode(codec_, encoded, floats, count, sender > 0); !status.ok()) return status;
  }
  return floats_ != nullptr ? device.cast(entry_.dtype, sum_.data, MV_F32, floats, count) : base::Status();
}

}  // namespace mv::kvstore
