#include "codec/on_device.hpp"

#include <algorithm>
#include <utility>

#include "tensor/dtype.hpp"

namespace mv::codec {

namespace {
/// Kernels write words.
constexpr size_t kAligned = 16;

const OnDevice* find(const tensor::Device& device) { return dynamic_cast<const OnDevice*>(&device); }
}  // namespace

bool is_on_device(const Codec& codec, mv_dtype dtype, const tensor::Device& device) {
  const OnDevice* const codecs = find(device);
  return codecs != nullptr && tensor::storage_dtype(dtype) == MV_F32 && codecs->has(codec);
}

OnDevice& codecs_of(tensor::Device& device) { return *const_cast<OnDevice*>(find(device)); }

DeviceEncoding::DeviceEncoding(tensor::Device& device, const Codec& codec, mv_dtype dtype, std::span<const Piece> pieces)
    : device_(device), codec_(codec), dtype_(dtype), pieces_(pieces.begin(), pieces.end()) {
  for (const Piece& piece : pieces_) {
    places_.push_back(room_);
    room_ += (codecs_of(device).encoding_room(codec, piece.count) + kAligned - 1) / kAligned * kAligned;
  }
}

base::Result<DeviceEncoding> DeviceEncoding::make(tensor::Device& device, const Codec& codec, mv_dtype dtype, std::span<const Piece> pieces) {
  DeviceEncoding made(device, codec, dtype, pieces);
  auto encoded = device.allocate(made.room_, tensor::Allocator::Content::kAnything);
  if (!encoded.ok()) return encoded.status();
  made.encoded_ = std::move(encoded).value();
  return made;
}

size_t DeviceEncoding::wide_bytes() const {
  uint64_t longest = 0;
  for (const Piece& piece : pieces_) longest = std::max(longest, piece.count);
  return dtype_ == MV_F32 ? 0 : longest * sizeof(float);
}

base::Status DeviceEncoding::run(const std::byte* gradient, std::byte* residual, std::byte* wide) {
  OnDevice& codecs = codecs_of(device_);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const auto [first, count, at] = pieces_[i];
    const auto* values = reinterpret_cast<const float*>(gradient) + first;
    if (dtype_ != MV_F32) {
      if (auto status = device_.cast(MV_F32, wide, dtype_, gradient + first * tensor::dtype_bytes(dtype_), count); !status.ok()) return status;
      values = reinterpret_cast<const float*>(wide);
    }
    auto status = codecs.encode(codec_, values, reinterpret_cast<float*>(residual) + first, count, encoded_->data() + places_[i]);
    if (!status.ok()) return status;
  }
  return {};
}

/// Runs of pieces that lie on the host as they do on the device are copied at once.
base::Status DeviceEncoding::read(std::byte* out) const {
  for (size_t begin = 0, end = 0; begin < pieces_.size(); begin = end) {
    const auto fits = [&](size_t i) { return pieces_[i].at - pieces_[begin].at == places_[i] - places_[begin]; };
    for (end = begin + 1; end < pieces_.size() && fits(end);) ++end;
    if (auto status = device_.to_host(out + pieces_[begin].at, data() + places_[begin], end_of(end - 1) - places_[begin]); !status.ok()) return status;
  }
  return {};
}

base::Result<DeviceDecoding> DeviceDecoding::make(tensor::Device& device, const Codec& codec, mv_dtype dtype, size_t bytes, size_t longest) {
  DeviceDecoding made(device, codec, dtype, bytes);
  auto encoded = device.allocate(bytes, tensor::Allocator::Content::kAnything);
  if (!encoded.ok()) return encoded.status();
  made.encoded_ = std::move(encoded).value();
  if (dtype == MV_F32) return made;
  auto wide = device.allocate(longest * sizeof(float), tensor::Allocator::Content::kAnything);
  if (!wide.ok()) return wide.status();
  made.wide_ = std::move(wide).value();
  return made;
}

base::Status DeviceDecoding::run(std::span<const Piece> pieces, const std::byte* encoded, std::byte* values) {
  if (auto status = device_->from_host(encoded_->data(), encoded, bytes_); !status.ok()) return status;
  OnDevice& codecs = codecs_of(*device_);
  for (const auto& [first, count, at] : pieces) {
    std::byte* const out = values + first * tensor::dtype_bytes(dtype_);
    std::byte* const floats = dtype_ == MV_F32 ? out : wide_->data();
    if (auto status = codecs.decode(*codec_, encoded_->data() + at, reinterpret_cast<float*>(floats), count, false); !status.ok()) return status;
    if (floats == out) continue;
    if (auto status = device_->cast(dtype_, out, MV_F32, floats, count); !status.ok()) return status;
  }
  return {};
}

}  // namespace mv::codec
