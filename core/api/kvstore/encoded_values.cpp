#include "api/kvstore/encoded_values.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "codec/values.hpp"

namespace mv::kvstore {

using Content = tensor::Allocator::Content;

base::Status EncodedValues::prepare() {
  const codec::Piece whole{0, entry_.shape.count(), 0};
  for (size_t sender = 0; sender < values_.size(); ++sender) {
    tensor::Device* const device = tensor::device_of(values_[sender]);
    if (const auto ready = residual(sender); !ready.ok()) return ready.status();
    auto& encoding = encodings_.emplace_back();
    if (device == nullptr) continue;
    auto made = codec::DeviceEncoding::make(*device, codec_, entry_.dtype, {&whole, 1});
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
    auto wide = device.allocate(entry_.residual_bytes(), Content::kAnything);
    if (!wide.ok()) return wide.status();
    wide_ = std::move(wide).value();
  }
  if (std::ranges::any_of(values_, [&](const Tensor& value) { return tensor::device_of(value) != &device; })) {
    here_.resize(codec_.encoded_bytes(entry_.shape.count()));
    auto arrived = device.allocate(here_.size(), Content::kAnything);
    if (!arrived.ok()) return arrived.status();
    arrived_ = std::move(arrived).value();
  }
  return prepare();
}

/// Where the sender's value is.
base::Result<std::byte*> EncodedValues::residual(size_t sender) const {
  return entry_.residuals.beside(tensor::device_of(values_[sender]), sender, entry_.residual_bytes());
}

base::Status EncodedValues::read(size_t sender, std::byte* out) {
  const auto left = residual(sender);
  if (!left.ok()) return left.status();
  if (encodings_[sender]) {
    auto status = encodings_[sender]->run(values_[sender].data, left.value());
    return status.ok() ? encodings_[sender]->read(out) : status;
  }
  codec::encode_values(codec_, entry_.dtype, values_[sender].data, left.value(), entry_.shape.count(), out);
  return {};
}

/// Brings the encoded bytes of one sender to the sum's device.
base::Status EncodedValues::arrive(size_t sender) {
  tensor::Device& device = *tensor::device_of(sum_);
  tensor::Device* const from = tensor::device_of(values_[sender]);
  const size_t bytes = codec_.encoded_bytes(entry_.shape.count());
  if (from == &device) return {};
  if (from != nullptr) return device.copy_from(*from, arrived_->data(), encodings_[sender]->data(), bytes);
  auto status = read(sender, here_.data());
  return status.ok() ? device.from_host(arrived_->data(), here_.data(), bytes) : status;
}

base::Status EncodedValues::merge(std::span<EncodedValues* const> keys) {
  const codec::Codec& codec = keys.front()->codec_;
  tensor::Device& device = *tensor::device_of(keys.front()->sum_);
  std::map<tensor::Device*, std::vector<codec::Encoding>> encodings;
  std::vector<std::vector<codec::Decoding>> decodings;  // by senders
  for (EncodedValues* const key : keys) {
    decodings.resize(std::max(decodings.size(), key->values_.size()));
    for (size_t sender = 0; sender < key->values_.size(); ++sender) {
      tensor::Device* const from = tensor::device_of(key->values_[sender]);
      const auto& encoding = key->encodings_[sender];
      if (from != nullptr) {
        const auto left = key->residual(sender);
        if (!left.ok()) return left.status();
        encoding->list(key->values_[sender].data, left.value(), encodings[from]);
      }
      const bool is_rounded = key->wide_ != nullptr && sender + 1 == key->values_.size();
      decodings[sender].push_back({from == &device ? encoding->data() : key->arrived_->data(), key->floats(), key->entry_.shape.count(),
                                   is_rounded ? key->sum_.data : nullptr, key->entry_.dtype});
    }
  }
  for (const auto& [from, some] : encodings)
    if (auto status = codec::codecs_of(*from).encode(codec, some); !status.ok()) return status;
  for (size_t sender = 0; sender < decodings.size(); ++sender) {
    for (EncodedValues* const key : keys)
      if (sender < key->values_.size())
        if (auto status = key->arrive(sender); !status.ok()) return status;
    if (auto status = codec::codecs_of(device).decode(codec, decodings[sender], sender > 0); !status.ok()) return status;
  }
  return {};
}

}  // namespace mv::kvstore
