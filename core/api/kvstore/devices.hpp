#pragma once
// Tensors of devices on their way into a store.

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "tensor/device.hpp"
#include "tensor/tensor.hpp"

namespace mv::kvstore {

using tensor::Tensor;
/// The tensors of each key of a call, one for each device.
using Values = std::vector<std::span<const Tensor>>;

/// out[i] = the sum of element i of all values, in their order. 16-bit floats are summed as floats and rounded once.
/// All values are dense, in the host's memory, of one shape and dtype.
void sum_devices(std::span<const Tensor> values, std::byte* out);
/// Likewise for some elements only.
void sum_devices(std::span<const Tensor> values, uint64_t first, size_t count, std::byte* out);

/// The values of a call, in the memory in which its code reads them.
class PlacedValues {
 public:
  enum class Place {
    kGiven,  ///< where the caller has them
    kHost,   ///< copied to the host
    kSum,    ///< one tensor: the sum on the device of the first value. If the first one is on the host, all are copied there
    kHostSum,  ///< a copy of that sum on the host, so that fewer bytes are copied
  };
  /// Row-sparse values have no sum on a device: they are copied to the host.
  static base::Result<PlacedValues> make(const Values& values, const std::function<Place(size_t key)>& place);
  const Values& values() const { return values_; }

 private:
  Values values_;
  std::deque<std::vector<Tensor>> copies_;
};

/// The device of the first of these tensors that is on one, or null.
tensor::Device* any_device(std::span<const Tensor> values);
/// Whether any of these tensors is in the memory of a device.
bool any_on_device(const Values& values);

}  // namespace mv::kvstore
