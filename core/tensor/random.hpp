#pragma once
// A counter-based random number generator: each number depends only on a seed and a position.

#include <array>
#include <cstdint>

#include "tensor/tensor.hpp"

namespace mv::tensor {

/// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);
/// The p-quantile of the standard normal distribution, 0 < p < 1: Wichura, "Algorithm AS 241: the percentage points of
/// the normal distribution", Applied Statistics 37 (1988), routine PPND16. Relative error about 1 in 10^16.
double normal_quantile(double p);

base::Status fill_uniform(const char* function, const Tensor& tensor, int64_t seed, double low, double high);
base::Status fill_normal(const char* function, const Tensor& tensor, int64_t seed, double mean, double deviation);

}  // namespace mv::tensor
