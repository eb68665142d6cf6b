#pragma once
// sum_devices(): sums several tensors that are pushed to one key.

#include <cstdint>
#include <span>

#include "tensor/tensor.hpp"

namespace mv::kvstore {

/// out[i] = the sum of element i of all values, in their order. 16-bit floats are summed as floats and rounded once.
/// All values are dense, of one shape and dtype.
void sum_devices(std::span<const tensor::Tensor> values, std::byte* out);
/// Likewise for some elements only.
void sum_devices(std::span<const tensor::Tensor> values, uint64_t first, size_t count, std::byte* out);

}  // namespace mv::kvstore
