#pragma once
// Several tensors under one key, summed up when they are pushed.

#include <cstdint>
#include <span>

#include "tensor/tensor.hpp"

namespace mv::kvstore {

/// out[i] = the sum of all values' element i, in their order, halves as floats that are rounded once. All dense, of one shape and dtype.
void sum_devices(std::span<const tensor::Tensor> values, std::byte* out);
/// The same of some elements only.
void sum_devices(std::span<const tensor::Tensor> values, uint64_t first, size_t count, std::byte* out);

}  // namespace mv::kvstore
