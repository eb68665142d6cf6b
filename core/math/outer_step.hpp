#pragma once
// NoLoCo's outer step on one array. A kernel as in kernels.hpp: bit-equal on all instruction sets, except for the sum
// that it returns.

#include <polyverso/polyverso.h>

#include <cstddef>

namespace mv::math {

/// A slow model and the change that training has made to it since.
struct SlowModel {
  const std::byte* slow;   ///< phi
  const std::byte* delta;  ///< theta - phi
};
struct OuterFactors {
  double alpha, beta, gamma;
};

/// momentum = alpha * momentum + beta * (own.delta + peer.delta) / 2 - gamma * (own.slow - peer.slow) / 2
/// slow = own.slow + momentum
/// model = slow + (model - (own.slow + own.delta)): training since own.delta was taken is kept
///
/// dtype is MV_F32 or MV_F64. `slow` may be own.slow; `peer` may be `own`, for a step without a peer. Returns the sum
/// of the squares of (peer.slow + peer.delta) - (own.slow + own.delta), up to rounding.
double outer_step_bytes(mv_dtype dtype, std::byte* model, std::byte* slow, std::byte* momentum, const SlowModel& own, const SlowModel& peer,
                        size_t count, const OuterFactors& factors) noexcept;

}  // namespace mv::math
