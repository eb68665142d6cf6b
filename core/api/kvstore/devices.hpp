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

/// The values of a call for code that reads them in the host's memory.
class HostValues {
 public:
  enum class Sum { kNever, kOnDevices };
  /// Copies the tensors of devices, except those of keys for which stays(key) holds. Sum::kOnDevices: several dense values of a key
  /// become their sum, on the device of the first one, so that fewer bytes are copied.
  static base::Result<HostValues> make(const Values& values, const std::function<bool(size_t key)>& stays, Sum sum);
  const Values& values() const { return values_; }

 private:
  Values values_;
  std::deque<std::vector<Tensor>> copies_;
};

/// Whether any of these tensors is in the memory of a device.
bool any_on_device(const Values& values);

}  // namespace mv::kvstore
