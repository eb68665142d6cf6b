#pragma once
// Codecs in the memory of devices: gradients are encoded there, and only encoded bytes leave.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "codec/codec.hpp"
#include "tensor/device.hpp"

namespace mv::codec {

/// An array to encode. A gradient of f32, f16 or bf16.
struct Encoding {
  const std::byte* gradient;
  mv_dtype dtype;
  float* residual;
  uint64_t count;
  std::byte* out;  ///< at a multiple of 4
};
/// An array to decode.
struct Decoding {
  const std::byte* encoded;  ///< at a multiple of 4
  float* values;
  uint64_t count;
  std::byte* rounded = nullptr;  ///< unless it is null, the values are then rounded to this dtype, into it
  mv_dtype dtype = MV_F32;
};

/// What a device has of codecs, with the bytes and values that they have on the host. All memory is the device's. Work is done in the
/// order of the calls, and a call returns when its work is queued. Any thread. The room device/ implements it.
class OnDevice {
 public:
  virtual ~OnDevice() = default;
  virtual bool has(const Codec& codec) const = 0;
  /// The bytes that encode() needs at `out`: the encoded bytes, and room to work behind them.
  virtual size_t encoding_room(const Codec& codec, size_t count) const = 0;
  /// encode_values() of each array, all at once.
  virtual base::Status encode(const Codec& codec, std::span<const Encoding> arrays) = 0;
  /// Codec::decode() of each array, or decode_add() with `adds`.
  virtual base::Status decode(const Codec& codec, std::span<const Decoding> arrays, bool adds) = 0;
};

/// Whether values of this dtype can pass through the codec on the device. Otherwise copy them to the host.
bool is_on_device(const Codec& codec, mv_dtype dtype, const tensor::Device& device);
/// The codecs of a device on which is_on_device() holds.
OnDevice& codecs_of(tensor::Device& device);

/// A piece of an array that is encoded separately: `count` elements from `first` on. Its encoded bytes begin at `at`.
struct Piece {
  uint64_t first, count, at;
};

/// An array on a device on its way through a codec for which is_on_device() holds. After make() only a failure of the device ends it.
class DeviceEncoding {
 public:
  /// Allocates the room for the encoded bytes. MV_ENOMEM.
  static base::Result<DeviceEncoding> make(tensor::Device& device, const Codec& codec, mv_dtype dtype, std::span<const Piece> pieces);
  /// Lists the pieces of `gradient` for OnDevice::encode(). `residual`, floats on the device, is added, and receives what the codec leaves out.
  void list(const std::byte* gradient, std::byte* residual, std::vector<Encoding>& to) const;
  /// Encodes them.
  base::Status run(const std::byte* gradient, std::byte* residual) const;
  /// Copies the encoded pieces to the host: that of piece i to out + at.
  base::Status read(std::byte* out) const;
  /// The encoded bytes of the first piece, on the device.
  const std::byte* data() const { return encoded_->data(); }

 private:
  DeviceEncoding(tensor::Device& device, const Codec& codec, mv_dtype dtype, std::span<const Piece> pieces);
  size_t end_of(size_t piece) const { return places_[piece] + codec_.encoded_bytes(pieces_[piece].count); }

  tensor::Device& device_;
  const Codec& codec_;
  const mv_dtype dtype_;
  std::vector<Piece> pieces_;
  std::vector<size_t> places_;  ///< of the encoded pieces on the device
  size_t room_ = 0;             ///< for all of them
  std::shared_ptr<tensor::Block> encoded_;
};

/// Encoded pieces on their way into an array on a device on which is_on_device() holds. After make() only a failure of the device ends it.
class DeviceDecoding {
 public:
  /// Allocates memory for `bytes` encoded bytes, and for floats if the `count` values are none. MV_ENOMEM.
  static base::Result<DeviceDecoding> make(tensor::Device& device, const Codec& codec, mv_dtype dtype, size_t bytes, size_t count);
  /// Copies the encoded bytes to the device, and decodes them into `values` there. Each piece begins at a multiple of 4.
  base::Status run(std::span<const Piece> pieces, const std::byte* encoded, std::byte* values);
  tensor::Device& device() const { return *device_; }

 private:
  DeviceDecoding(tensor::Device& device, const Codec& codec, mv_dtype dtype, size_t bytes) : device_(&device), codec_(&codec), dtype_(dtype), bytes_(bytes) {}

  tensor::Device* device_;
  const Codec* codec_;
  mv_dtype dtype_;
  size_t bytes_;
  std::shared_ptr<tensor::Block> encoded_, wide_;  ///< wide_: floats, unless the values are
};

}  // namespace mv::codec
