#pragma once
// NoLoCo's outer step: slow models that are drawn together in pairs, with momentum, instead of an average of the models themselves.
//
// J. Kolehmainen, N. Blagoev, J. Donaghy, O. Ersoy, C. Nies: NoLoCo: No-all-reduce Low Communication Training Method for Large Models,
// arXiv:2506.10911, 2025. Node i has a slow model phi_i and a momentum delta_i. Training takes it from phi_i to theta_i, which is
// Delta_i = theta_i - phi_i. In a group of n, which here are two, or one where nobody was there:
//
//   delta_i <- alpha delta_i + beta / n * sum Delta_j - gamma (phi_i - sum phi_j / n)
//   phi_i   <- phi_i + delta_i,   theta_i = phi_i
//
// The sum of the gamma terms of a pair is zero: they bring its slow models together and leave their mean alone. With Delta = 0 two
// that always meet each other come together if gamma lies between 0 and 2 (1 + alpha) and alpha below 1.
//
// What is published is phi and Delta of every array of floats, one behind the other; others, counters as a rule, are averaged. What a node
// trains between publishing and the step, which may be long, stays: see math::outer_step_bytes().

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.hpp"
#include "engine/gossip/snapshot.hpp"
#include "math/outer_step.hpp"

namespace mv::gossip {

/// One node's slow models and momenta, array by array. They begin with the first model that is published.
class OuterSteps {
 public:
  explicit OuterSteps(const math::OuterFactors& factors) : factors_(factors) {}

  static bool is_slow(mv_dtype dtype) { return dtype == MV_F32 || dtype == MV_F64; }
  /// Adds array `number` to the snapshot under way: two parts, or one that is only averaged. MV_EDTYPE for halves and bytes, MV_ESHAPE for an
  /// array that was another before, and what Publisher::add() says.
  base::Status add(Publisher& to, size_t number, const void* data, const ArraySpec& part);
  /// The step of an array with is_slow(). `own` and `peer` are its parts of what was published; one and the same for a step alone. Gives the
  /// sum of the squares of what the models are apart.
  double step(size_t number, std::byte* model, const math::SlowModel& own, const math::SlowModel& peer);

 private:
  struct Array {
    ArraySpec part;
    std::vector<std::byte> slow, momentum;
  };
  const math::OuterFactors factors_;
  std::vector<Array> arrays_;
  std::vector<std::byte> delta_;  ///< of the array that is added
};

}  // namespace mv::gossip
