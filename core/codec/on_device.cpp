#include "codec/on_device.hpp"

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

void DeviceEncoding::list(const std::byte* gradient, std::byte* residual, std::vector<Encoding>& to) const {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const auto [first, count, at] = pieces_[i];
    to.push_back({gradient + first * tensor::dtype_bytes(dtype_), dtype_, reinterpret_cast<float*>(residual) + first, count, encoded_->data() + places_[i]});
  }
}

base::Status DeviceEncoding::run(const std::byte* gradient, std::byte* residual) const {
  std::vector<Encoding> all;
  list(gradient, residual, all);
  return codecs_of(device_).encode(codec_, all);
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

base::Result<DeviceDecoding> DeviceDecoding::make(tensor::Device& device, const Codec& codec, mv_dtype dtype, size_t bytes, size_t count) {
  DeviceDecoding made(device, codec, dtype, bytes);
  auto encoded = device.allocate(bytes, tensor::Allocator::Content::kAnything);
  if (!encoded.ok()) return encoded.status();
  made.encoded_ = std::move(encoded).value();
  if (dtype == MV_F32) return made;
  auto wide = device.allocate(count * sizeof(float), tensor::Allocator::Content::kAnything);
  if (!wide.ok()) return wide.status();
  made.wide_ = std::move(wide).value();
  return made;
}

base::Status DeviceDecoding::run(std::span<const Piece> pieces, const std::byte* encoded, std::byte* values) {
  auto* const floats = reinterpret_cast<float*>(dtype_ == MV_F32 ? values : wide_->data());
  std::vector<Decoding> all;
  for (const auto& [first, count, at] : pieces) {
    std::byte* const rounded = dtype_ != MV_F32 ? values + first * tensor::dtype_bytes(dtype_) : nullptr;
    all.push_back({encoded_->data() + at, floats + first, count, rounded, dtype_});
  }
  if (auto status = device_->from_host(encoded_->data(), encoded, bytes_); !status.ok()) return status;
  return codecs_of(*device_).decode(*codec_, all, false);
}

}  // namespace mv::codec
