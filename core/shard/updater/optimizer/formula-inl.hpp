// What the optimizers' formulas share. Included again for each instruction set, see lanes-inl.hpp.
#if defined(MV_TABLE_UPDATER_OPTIMIZER_FORMULA_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef MV_TABLE_UPDATER_OPTIMIZER_FORMULA_INL_HPP
#undef MV_TABLE_UPDATER_OPTIMIZER_FORMULA_INL_HPP
#else
#define MV_TABLE_UPDATER_OPTIMIZER_FORMULA_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "shard/updater/formula-inl.hpp"
#include "shard/updater/optimizer/traits.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using shard::HWY_NAMESPACE::Arrays;
using shard::HWY_NAMESPACE::each;
using shard::HWY_NAMESPACE::load;
using shard::HWY_NAMESPACE::store;

/// A vector with `number` in every lane.
template <class D>
HWY_INLINE hn::Vec<D> all(D tag, hn::TFromD<D> number) {
  return hn::Set(tag, number);
}

/// Clips to -most .. most; a NaN stays a NaN.
template <class D>
HWY_INLINE hn::Vec<D> clipped(D tag, hn::Vec<D> value, hn::TFromD<D> most) {
  const auto bound = hn::Set(tag, most);
  const auto cut = hn::IfThenElse(hn::Gt(value, bound), bound, value);
  return hn::IfThenElse(hn::Lt(cut, hn::Neg(bound)), hn::Neg(bound), cut);
}

/// The preparation of a gradient: rescale_grad, clip_gradient and weight decay.
template <typename T>
struct Gradient {
  HWY_INLINE explicit Gradient(const double* n)
      : rescale(static_cast<T>(n[kRescale])), decay(static_cast<T>(n[kDecay])), most(static_cast<T>(n[kClip])) {}

  /// clip(rescale_grad g)
  template <class D>
  HWY_INLINE hn::Vec<D> plain(D tag, const T* g) const {
    const auto scaled = hn::Mul(hn::Set(tag, rescale), load(tag, g));
    return most > 0 ? clipped(tag, scaled, most) : scaled;
  }
  /// clip(rescale_grad g) + wd w
  template <class D>
  HWY_INLINE hn::Vec<D> then_decayed(D tag, const T* g, hn::Vec<D> w) const {
    return hn::Add(plain(tag, g), hn::Mul(hn::Set(tag, decay), w));
  }
  /// clip(rescale_grad g + wd w)
  template <class D>
  HWY_INLINE hn::Vec<D> decayed_first(D tag, const T* g, hn::Vec<D> w) const {
    const auto scaled = hn::Mul(hn::Set(tag, rescale), load(tag, g));
    const auto whole = hn::Add(scaled, hn::Mul(hn::Set(tag, decay), w));
    return most > 0 ? clipped(tag, whole, most) : whole;
  }

  const T rescale, decay, most;
};

/// An exponential moving average: keep old + (1 - keep) fresh. 1 - keep is computed in T's precision.
template <typename T>
struct Mean {
  HWY_INLINE explicit Mean(double keep) : keep(static_cast<T>(keep)), take(T(1) - static_cast<T>(keep)) {}
  template <class D>
  HWY_INLINE hn::Vec<D> of(D tag, hn::Vec<D> old, hn::Vec<D> fresh) const {
    return hn::Add(hn::Mul(hn::Set(tag, keep), old), hn::Mul(hn::Set(tag, take), fresh));
  }
  const T keep, take;
};

/// Elements of a temporary array that is processed at a time: it stays in the L1 cache. std::min() takes size_t{kAtOnce},
/// because a device has its value but no object.
#ifdef MV_ONE_LANE
inline constexpr size_t kAtOnce = 32;  // a device computes single elements, or those that one batch of random numbers serves
#else
inline constexpr size_t kAtOnce = 1024;
#endif

/// load() of floats or doubles as the tag's type, which must not be narrower.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_as(D tag, const T* from) {
  if constexpr (sizeof(hn::TFromD<D>) == sizeof(T))
    return load(tag, from);
  else
    return hn::PromoteTo(tag, load(hn::Rebind<T, D>(), from));
}

/// The sum of squares, in an order that does not depend on the instruction set: 16 sums of every 16th element each,
/// then the sum of these.
class Squares {
 public:
  /// `values` should be in the L1 cache, because they are read several times.
  template <typename T>
  HWY_INLINE void add(const T* values, size_t count) {
    const size_t whole = count / kLanes * kLanes;
    add_lanes(values, whole);
    if (whole == count) return;
    T rest[kLanes] = {};
    std::memcpy(rest, values + whole, (count - whole) * sizeof(T));
    add_lanes(rest, kLanes);
  }
  HWY_INLINE double total() const { return std::accumulate(lanes_, lanes_ + kLanes, 0.0); }

 private:
#ifdef MV_ONE_LANE
  static constexpr size_t kLanes = 1;
#else
  static constexpr size_t kLanes = 16;
#endif

  template <typename T>
  HWY_INLINE void add_lanes(const T* values, size_t count) {
    const hn::CappedTag<double, kLanes> tag;
    for (size_t k = 0; k < kLanes; k += hn::Lanes(tag)) {
      auto sum = load(tag, lanes_ + k);
      for (size_t i = k; i < count; i += kLanes) {
        const auto value = load_as(tag, values + i);
        sum = hn::Add(sum, hn::Mul(value, value));
      }
      store(sum, tag, lanes_ + k);
    }
  }

  alignas(64) double lanes_[kLanes] = {};
};

/// -1, 0 or 1; 0 of NaN. Ne(), which would need one operation less, gives different results for NaN on different instruction sets.
template <class D>
HWY_INLINE hn::Vec<D> sign_of(D tag, hn::Vec<D> value) {
  const auto one = hn::Set(tag, hn::TFromD<D>(1)), zero = hn::Zero(tag);
  return hn::Sub(hn::IfThenElseZero(hn::Gt(value, zero), one), hn::IfThenElseZero(hn::Lt(value, zero), one));
}

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
