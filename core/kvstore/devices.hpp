#pragma once
// Several tensors under one key: summed up when they are pushed, all filled when they are pulled.

#include <span>

#include "tensor/tensor.hpp"

namespace mv::kvstore {

/// out[i] = the sum of all values' element i, in their order, halves as floats that are rounded once. All dense, of one shape and dtype.
void sum_devices(std::span<const tensor::Tensor> values, std::byte* out);
/// What the first one holds, into the others.
void copy_to_devices(std::span<const tensor::Tensor> values);

}  // namespace mv::kvstore
