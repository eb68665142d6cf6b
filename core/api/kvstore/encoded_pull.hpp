#pragma once
// EncodedPull: a pulled value that is decoded where its tensors are.

#include <memory>
#include <span>
#include <vector>

#include "api/kvstore/entry.hpp"
#include "codec/on_device.hpp"

namespace mv::kvstore {

/// The value of one key on its way to tensors of devices that have the codec: only encoded bytes are copied to a device, once for all of its
/// tensors, and decoded there.
class EncodedPull {
 public:
  /// Whether all devices of these tensors have the codec.
  static bool suits(const Entry& entry, const codec::Codec& codec, std::span<const Tensor> on_devices);
  /// Has all memory that finish() needs. MV_ENOMEM.
  static base::Result<std::unique_ptr<EncodedPull>> make(const Entry& entry, codec::CodecRef codec, std::span<const Tensor> on_devices);

  api::Started begin(api::Table& table, const api::CallOptions& options) const;
  /// The bytes have arrived.
  base::Status finish();
  /// After that, also for a tensor on the host.
  void decode(const Tensor& out) const;

 private:
  /// The tensors of one device.
  struct There {
    codec::DeviceDecoding decoding;
    std::vector<Tensor> outs;
  };

  codec::CodecRef codec_;
  api::EncodedPieces pieces_;
  std::shared_ptr<tensor::Block> encoded_;  ///< on the host
  std::vector<There> there_;
};

}  // namespace mv::kvstore
