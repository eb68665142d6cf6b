#pragma once
// Copies of a device's arrays to other devices.

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

#include "device/graphs.hpp"
#include "device/tensors.hpp"

namespace mv::device {

/// Copies from one device to tensors of others, all of them in one list of work for each. Arrays for two or more other devices may go in parts
/// (Path::kByParts): each of them copies a part from the device, and then the other parts from each other, so that not all is sent by one device.
class Broadcasts {
 public:
  /// @param stream  the device's, whose earlier work writes the arrays
  Broadcasts(TensorDevice& device, const Stream& stream) : device_(device), stream_(stream) {}
  /// @param from  an array on the device
  /// @param outs  dense tensors of its dtype and shape; those that are not on other devices are ignored
  void add(const void* from, std::span<const tensor::Tensor> outs);
  /// Begins all copies. Later work of the streams comes after them.
  base::Status run();

 private:
  struct Array {
    const std::byte* from;
    std::vector<const tensor::Tensor*> outs;    ///< the first one of each other device
    std::vector<std::pair<const tensor::Tensor*, const tensor::Tensor*>> further;  ///< a tensor, and the one of `outs` on its device
  };
  /// What another device does.
  struct Share {
    TensorDevice& device;
    const Stream& stream;
    WorkList first = {}, second = {};
  };

  Share& share_of(const tensor::Tensor& out);
  static bool can_split(const Array& array);
  void list(const Array& array, Path path);
  base::Status begin();
  base::Status run(Path path);

  TensorDevice& device_;
  const Stream& stream_;
  std::vector<Array> arrays_;
  std::deque<Share> shares_;
};

}  // namespace mv::device
