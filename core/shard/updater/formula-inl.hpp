// What updaters' formulas over SIMD vectors share. Included again for each instruction set, see lanes-inl.hpp. IEEE 754
// rounds square roots and divisions correctly, so on every machine these formulas give the same bits as a scalar loop
// with the same operations.
#if defined(MV_TABLE_UPDATER_FORMULA_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef MV_TABLE_UPDATER_FORMULA_INL_HPP
#undef MV_TABLE_UPDATER_FORMULA_INL_HPP
#else
#define MV_TABLE_UPDATER_FORMULA_INL_HPP
#endif

#include <hwy/highway.h>

#include "math/lanes-inl.hpp"
#include "shard/updater/kind.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using math::HWY_NAMESPACE::load;
using math::HWY_NAMESPACE::store;

/// A block's arrays as arrays of T.
template <typename T>
struct Arrays {
  HWY_INLINE explicit Arrays(const Block& block)
      : w(reinterpret_cast<T*>(block.values)), g(reinterpret_cast<const T*>(block.added)), block(block) {}
  HWY_INLINE T* state(size_t index) const { return reinterpret_cast<T*>(block.states[index]); }
  /// A state that only some parameters need. Without it the formula does not use the pointer.
  HWY_INLINE T* state_if([[maybe_unused]] bool is_there, size_t index) const {
#ifdef MV_ONE_LANE
    return state(index);  // in registers, which must not depend on a condition
#else
    return is_there ? state(index) : nullptr;
#endif
  }
  T* const w;
  const T* const g;
  const Block& block;
};

/// formula(tag, i) for all elements of the block: each call handles one vector of elements, from element i on.
template <typename T, typename Formula>
HWY_INLINE void each(const Block& block, const Formula& formula) {
  math::HWY_NAMESPACE::over_lanes_of<T>(block.values, block.count, formula);
}

/// g + decay w
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> decayed(D tag, hn::Vec<D> g, hn::Vec<D> w, T decay) {
  return decay == 0 ? g : hn::Add(g, hn::Mul(hn::Set(tag, decay), w));
}

}  // namespace mv::shard::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
