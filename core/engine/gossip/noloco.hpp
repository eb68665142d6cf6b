#pragma once
// NoLoCo's outer step: instead of averaging models, pairs of nodes draw their slow models together, with momentum.
//
// J. Kolehmainen, N. Blagoev, J. Donaghy, O. Ersoy, C. Nies: NoLoCo: No-all-reduce Low Communication Training Method
// for Large Models, arXiv:2506.10911, 2025. Node i has a slow model phi_i and a momentum delta_i. Training moves its
// model from phi_i to theta_i, so Delta_i = theta_i - phi_i. In a group of n nodes, here two, or one if no peer
// answered:
//
//   delta_i <- alpha delta_i + beta / n * sum Delta_j - gamma (phi_i - sum phi_j / n)
//   phi_i   <- phi_i + delta_i,   theta_i = phi_i
//
// The gamma terms of a pair add up to zero: they draw its slow models together and preserve their mean. With Delta = 0,
// two nodes that always meet converge if gamma is between 0 and 2 (1 + alpha) and alpha is below 1.
//
// A node publishes phi and Delta of every f32 or f64 array, one after the other. Other arrays, usually counters, are
// averaged. What a node trains between publishing and the step, which may take long, is preserved: see
// math::outer_step_bytes().

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.hpp"
#include "engine/gossip/snapshot.hpp"
#include "math/outer_step.hpp"
#include "tensor/device.hpp"

namespace mv::gossip {

/// One node's slow models and momenta, array by array, each where the node's array was last: on the host or on a device. The slow models begin
/// as the first published model.
class OuterSteps {
 public:
  explicit OuterSteps(const math::OuterFactors& factors) : factors_(factors) {}

  static bool is_slow(mv_dtype dtype) { return dtype == MV_F32 || dtype == MV_F64; }
  /// Adds array `number` to the snapshot being built, as two parts, or as one if it is only averaged. MV_EDTYPE for
  /// 16-bit floats and bytes, MV_ESHAPE for an array that has changed since the first time, and the errors of
  /// Publisher::add().
  base::Status add(Publisher& to, size_t number, const void* data, const ArraySpec& part);
  /// The same for an array with is_slow() on a device. False: the device has no memory for it, and nothing was added.
  base::Result<bool> add(Publisher& to, size_t number, tensor::Device& device, const void* data, const ArraySpec& part);
  /// The snapshot was published, or discarded: then the slow models that begin with it are forgotten.
  void keep() { kept_ = arrays_.size(); }
  void drop() { arrays_.erase(arrays_.begin() + static_cast<ptrdiff_t>(kept_), arrays_.end()); }
  /// Performs the step of an array with is_slow(). `own` and `peer` are its published parts; they are the same for a
  /// step without a peer. Returns the sum of the squared differences between the two models.
  base::Result<double> step(size_t number, std::byte* model, const math::SlowModel& own, const math::SlowModel& peer);
  /// The same for a model on a device. MV_ENOMEM: nothing has changed.
  base::Result<double> step(size_t number, tensor::Device& device, void* model, const math::SlowModel& own, const math::SlowModel& peer);

 private:
  struct Array {
    ArraySpec part;
    std::vector<std::byte> slow, momentum;  ///< on the host
    tensor::Device* device = nullptr;       ///< or else in its memory:
    std::shared_ptr<tensor::Block> slow_there = nullptr, momentum_there = nullptr;
  };
  base::Status check(size_t number, const ArraySpec& part) const;
  static base::Status bring(Array& array);
  static base::Status bring(Array& array, tensor::Device& device);
  base::Result<std::shared_ptr<tensor::Block>> moved(Array& array, const void* data);
  static base::Status publish(Publisher& to, size_t number, const std::byte* values, const ArraySpec& part);
  const math::OuterFactors factors_;
  std::vector<Array> arrays_;
  size_t kept_ = 0;  ///< arrays of published snapshots
  std::vector<std::byte> delta_;  ///< of the array being added; of one on a device, also its slow model
};

}  // namespace mv::gossip
