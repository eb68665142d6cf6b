#pragma once
// Sums of tensors from several places.

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "device/graphs.hpp"
#include "device/scratch.hpp"
#include "device/tensors.hpp"

namespace mv::device {

/// Sums on one device, all of them in one list of work.
class Sums {
 public:
  /// @param stream  the device's, on which the sums are computed
  Sums(TensorDevice& device, const Stream& stream) : device_(device), stream_(stream) {}
  /// A sum of dense tensors of one shape and dtype, wherever they are, in their order; halves are summed as floats and rounded once. Its
  /// place is `out`, or with null memory that the stream has as long as this lives, or that of the only one of `values`.
  /// `values` stay until run() returns.
  void add(std::span<const tensor::Tensor> values, void* out = nullptr);
  /// Allocates memory for all sums, and begins them. MV_ENOMEM: nothing has begun.
  base::Status run();
  const void* at(size_t sum) const { return sums_[sum].out; }

 private:
  struct Sum {
    std::span<const tensor::Tensor> values;
    void* out;
  };
  bool is_here(const tensor::Tensor& value) const { return tensor::device_of(value) == &device_; }
  size_t room_of(const Sum& sum) const;
  base::Result<std::vector<const void*>> gather(const Sum& sum);
  void list(Sum& sum, std::span<const void* const> here);

  TensorDevice& device_;
  const Stream& stream_;
  std::vector<Sum> sums_;
  std::optional<Room> room_;
  std::vector<TensorDevice*> sources_;  ///< other devices that have values
  WorkList work_;
};

}  // namespace mv::device
