#pragma once
// EncodedValues: what the senders of a store of this process push to a key, after the codec.

#include <optional>
#include <span>
#include <vector>

#include "api/kvstore/entry.hpp"
#include "codec/on_device.hpp"

namespace mv::kvstore {

/// The values of one push to a key, one for each sender, on their way through a codec. Each has its sender's residual, and is encoded
/// where it is. Values on devices are of a dtype that the codec has there. The caller holds entry.merging from prepare() on.
class EncodedValues {
 public:
  EncodedValues(Entry& entry, std::span<const Tensor> values, const codec::Codec& codec) : entry_(entry), values_(values), codec_(codec) {}

  /// Allocates, so that later only the failure of a device is an error, and no residual has changed in vain. MV_ENOMEM.
  base::Status prepare();
  /// The same, and for sum().
  base::Status prepare_sum(tensor::Device& device);
  /// Encodes the value of one sender, once, into codec.encoded_bytes() bytes on the host.
  base::Status read(size_t sender, std::byte* out);
  /// Encodes all, once, and decodes and sums them on the device of prepare_sum(), into sum(): a tensor there, of the key's dtype and shape.
  base::Status merge();
  const Tensor& sum() const { return sum_; }

 private:
  base::Status encode(size_t sender);

  Entry& entry_;
  const std::span<const Tensor> values_;
  const codec::Codec& codec_;
  std::vector<std::optional<codec::DeviceEncoding>> encodings_;  ///< of values on devices
  // For merge():
  std::vector<std::byte> here_;             ///< the encoded bytes of a value on the host
  std::shared_ptr<tensor::Block> arrived_;  ///< those of a value that is elsewhere, on the device
  std::shared_ptr<tensor::Block> floats_;   ///< null: the sum itself has floats
  Tensor sum_;
};

}  // namespace mv::kvstore
