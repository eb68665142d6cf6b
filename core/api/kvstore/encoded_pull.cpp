#include "api/kvstore/encoded_pull.hpp"

#include <algorithm>
#include <utility>

#include "codec/values.hpp"

namespace mv::kvstore {

bool EncodedPull::suits(const Entry& entry, const codec::Codec& codec, std::span<const Tensor> on_devices) {
  return std::ranges::all_of(on_devices, [&](const Tensor& out) { return codec::is_on_device(codec, entry.dtype, *tensor::device_of(out)); });
}

base::Result<std::unique_ptr<EncodedPull>> EncodedPull::make(const Entry& entry, codec::CodecRef codec, std::span<const Tensor> on_devices) {
  auto made = std::make_unique<EncodedPull>();
  made->codec_ = std::move(codec);
  made->pieces_ = entry.table->encoded_pieces(*made->codec_);
  const size_t bytes = made->pieces_.bytes;
  auto encoded = tensor::device_of(on_devices.front())->staging().allocate(bytes, tensor::Allocator::Content::kAnything);
  if (!encoded.ok()) return encoded.status();
  made->encoded_ = std::move(encoded).value();
  for (const Tensor& out : on_devices) {
    tensor::Device& device = *tensor::device_of(out);
    auto same = std::ranges::find_if(made->there_, [&](const There& one) { return &one.decoding.device() == &device; });
    if (same == made->there_.end()) {
      auto decoding = codec::DeviceDecoding::make(device, *made->codec_, entry.dtype, bytes, entry.shape.count());
      if (!decoding.ok()) return decoding.status();
      same = made->there_.insert(same, {std::move(decoding).value(), {}});
    }
    same->outs.push_back(out);
  }
  return made;
}

api::Started EncodedPull::begin(api::Table& table, const api::CallOptions& options) const {
  return table.get_pieces({encoded_->data(), pieces_.bytes}, codec_, options);
}

base::Status EncodedPull::finish() {
  for (auto& [decoding, outs] : there_) {
    const Tensor& first = outs.front();
    if (auto status = decoding.run(pieces_.pieces, encoded_->data(), first.data); !status.ok()) return status;
    for (const Tensor& copy : std::span(outs).subspan(1))
      if (auto status = tensor::copy_bytes(copy, first.data, &decoding.device(), first.stored_bytes()); !status.ok()) return status;
  }
  return {};
}

void EncodedPull::decode(const Tensor& out) const {
  for (const auto& [first, count, at] : pieces_.pieces)
    codec::decode_values(*codec_, out.dtype, encoded_->data() + at, out.data + first * tensor::dtype_bytes(out.dtype), count);
}

}  // namespace mv::kvstore
