#pragma once
// EncodedValues: what the senders of a store of this process push to a key, after the codec.

#include <array>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "api/kvstore/entry.hpp"
#include "codec/on_device.hpp"

namespace mv::kvstore {

/// Memory of devices for intermediate results, one room of each use and device, for all keys of a push: work on a device is done in order.
class Rooms {
 public:
  enum Use {
    kWide,     ///< a value as floats
    kSum,      ///< a sum of floats
    kArrived,  ///< encoded bytes from elsewhere
  };
  void need(Use use, tensor::Device& device, size_t bytes);
  /// MV_ENOMEM
  base::Status allocate();
  /// Null: it needs nothing.
  std::byte* of(Use use, tensor::Device& device) const {
    const auto found = rooms_.find({use, &device});
    return found != rooms_.end() ? found->second.block->data() : nullptr;
  }

 private:
  struct Room {
    size_t bytes = 0;
    std::shared_ptr<tensor::Block> block;
  };
  std::map<std::pair<Use, tensor::Device*>, Room> rooms_;
};

/// The values of one push to a key, one for each sender, on their way through a codec. Each has its sender's residual, and is encoded
/// where it is. Values on devices are of a dtype that the codec has there. The caller holds entry.merging from prepare() on, and calls
/// rooms.allocate() after it: later only the failure of a device is an error, and no residual has changed in vain.
class EncodedValues {
 public:
  EncodedValues(Entry& entry, std::span<const Tensor> values, const codec::Codec& codec, Rooms& rooms)
      : entry_(entry), values_(values), codec_(codec), rooms_(rooms) {}

  /// MV_ENOMEM
  base::Status prepare();
  /// The same, and for merge().
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
  Rooms& rooms_;
  std::vector<std::optional<codec::DeviceEncoding>> encodings_;  ///< of values on devices
  // For merge():
  std::vector<std::byte> here_;  ///< the encoded bytes of a value on the host
  Tensor sum_;
};

}  // namespace mv::kvstore
