#pragma once
// Tensors of devices on their way into a store.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>
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

/// The values of a call, in the memory in which its code reads them. Copies to the host overlap with each other and with the caller's work:
/// arrive() comes before a key's values are read.
class PlacedValues {
 public:
  enum class Place {
    kGiven,  ///< where the caller has them
    kHost,   ///< copied to the host
    kSum,    ///< one tensor: the sum on the device of the first value. If the first one is on the host, all are copied there
    kHostSum,  ///< a copy of that sum on the host, so that fewer bytes are copied
  };
  /// All where the caller has them; `given` must stay.
  explicit PlacedValues(const Values& given) : given_(&given) {}
  /// Row-sparse values have no sum on a device: they are copied to the host.
  static base::Result<PlacedValues> make(const Values& values, const std::function<Place(size_t key)>& place);
  const Values& values() const { return placed_.empty() ? *given_ : placed_; }
  /// Waits for the copies of one key's values.
  base::Status arrive(size_t key);
  base::Status arrive();

 private:
  base::Status copy_to_host(const std::vector<std::pair<size_t, std::vector<Tensor>*>>& keys);

  const Values* given_;
  Values placed_;  ///< empty: all are where the caller has them
  std::deque<std::vector<Tensor>> copies_;
  /// By key. Declared last: they wait for copies into the memory above.
  std::map<size_t, std::vector<std::unique_ptr<tensor::Arrival>>> arrivals_;
};

/// The device of the first of these tensors that is on one, or null.
tensor::Device* any_device(std::span<const Tensor> values);
/// Whether any of these tensors is in the memory of a device.
bool any_on_device(const Values& values);

}  // namespace mv::kvstore
