#pragma once
// What the codecs of a key have left out so far. Saving and loading: residual_exchange.cpp.

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "tensor/device.hpp"

namespace mv::kvstore {

/// The residual of each sender of a key; empty if it has none.
using Senders = std::vector<std::vector<std::byte>>;

/// The residuals of a key: what the codec has left out of its pushes so far, for each sender. A sender is this worker,
/// or in local stores each of its devices. Elements of the key's storage dtype. Each is in the memory of the host or of the device on
/// which it was used last. Its owner locks.
class Residuals {
 public:
  /// In the host's memory. All zeros at first. An error of the device that has it.
  base::Result<std::byte*> of(size_t sender, size_t bytes);
  /// In the memory of the device. Likewise, and MV_ENOMEM.
  base::Result<std::byte*> on(tensor::Device& device, size_t sender, size_t bytes);
  /// Where a value is: on the device, or with null on the host.
  base::Result<std::byte*> beside(tensor::Device* device, size_t sender, size_t bytes) { return device != nullptr ? on(*device, sender, bytes) : of(sender, bytes); }
  bool any() const { return !senders_.empty(); }
  void clear() { senders_.clear(); }

  /// Copies.
  base::Result<Senders> senders() const;
  void restore(Senders senders);

 private:
  /// One of the two, or none: zeros.
  struct Residual {
    std::vector<std::byte> here;
    std::shared_ptr<tensor::Block> there;
  };
  Residual& at(size_t sender);

  std::vector<Residual> senders_;
};

}  // namespace mv::kvstore
