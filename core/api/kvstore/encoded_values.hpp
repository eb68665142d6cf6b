#pragma once
// EncodedValues: what the senders of a store of this process push to a key, after the codec.

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "api/kvstore/entry.hpp"
#include "codec/on_device.hpp"

namespace mv::kvstore {

/// The values of one push to a key, one for each sender, on their way through a codec. Each has its sender's residual, and is encoded
/// where it is. Values on devices are of a dtype that the codec has there. The caller holds entry.merging from prepare() on. After it only
/// the failure of a device is an error, and no residual has changed in vain.
class EncodedValues {
 public:
  EncodedValues(Entry& entry, std::span<const Tensor> values, const codec::Codec& codec) : entry_(entry), values_(values), codec_(codec) {}

  /// MV_ENOMEM
  base::Status prepare();
  /// The same, and for merge().
  base::Status prepare_sum(tensor::Device& device);
  /// Encodes the value of one sender, once, into codec.encoded_bytes() bytes on the host.
  base::Status read(size_t sender, std::byte* out);
  /// Encodes the values of several keys, once, and decodes and sums them on the device of prepare_sum(), the same for all, into sum(). The
  /// number of launches does not depend on that of the keys.
  static base::Status merge(std::span<EncodedValues* const> keys);
  /// A tensor of the key's dtype and shape.
  const Tensor& sum() const { return sum_; }

 private:
  base::Result<std::byte*> residual(size_t sender) const;
  float* floats() const { return reinterpret_cast<float*>(wide_ != nullptr ? wide_->data() : sum_.data); }
  base::Status arrive(size_t sender);

  Entry& entry_;
  const std::span<const Tensor> values_;
  const codec::Codec& codec_;
  std::vector<std::optional<codec::DeviceEncoding>> encodings_;  ///< of values on devices
  // For merge():
  std::vector<std::byte> here_;             ///< the encoded bytes of a value on the host
  std::shared_ptr<tensor::Block> arrived_;  ///< those of a value from elsewhere
  std::shared_ptr<tensor::Block> wide_;     ///< the sum as floats, unless the key has these
  Tensor sum_;
};

}  // namespace mv::kvstore
