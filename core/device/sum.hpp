#pragma once
// The sum of tensors from several places.

#include <span>

#include "device/scratch.hpp"
#include "device/tensors.hpp"

namespace mv::device {

/// The sum of dense tensors of one shape and dtype, wherever they are, in their order, on the device; halves are summed as floats and rounded
/// once. In `out`, or with null in memory of `scratch`, or in that of the only one of `values`. `scratch` is of
/// the stream, on which it is computed.
base::Result<const void*> sum_on(TensorDevice& device, const Stream& stream, Scratch& scratch, std::span<const tensor::Tensor> values,
                                 void* out = nullptr);

}  // namespace mv::device
