// A pass over arrays that also sums the squared distance of two of them. Included once for each instruction set, like
// lanes-inl.hpp.
#if defined(MV_MATH_SQUARES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef MV_MATH_SQUARES_INL_HPP
#undef MV_MATH_SQUARES_INL_HPP
#else
#define MV_MATH_SQUARES_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "math/lanes-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::math {
namespace HWY_NAMESPACE {

/// Calls element(tag, first) for 0 .. count - 1, like over_lanes(), and returns the sum of the squares of its results.
/// Blocks of 4096 elements are summed in T, the sums of the blocks in double. The last digits differ between
/// instruction sets.
template <typename T, typename Element>
HWY_INLINE double sum_of_squares(size_t count, const Element& element) {
  constexpr size_t kBlock = 4096;
  double sum = 0;
  for (size_t first = 0; first < count; first += kBlock) {
    const hn::ScalableTag<T> whole;
    auto squares = hn::Zero(whole);
    double rest = 0;
    over_lanes<T>(std::min(kBlock, count - first), [&](auto tag, size_t i) HWY_ATTR {
      const auto apart = element(tag, first + i);
      const auto square = hn::Mul(apart, apart);
      if constexpr (hn::MaxLanes(tag) == hn::MaxLanes(hn::ScalableTag<T>()))
        squares = hn::Add(squares, square);
      else
        rest += static_cast<double>(hn::GetLane(hn::SumOfLanes(tag, square)));
    });
    sum += static_cast<double>(hn::GetLane(hn::SumOfLanes(whole, squares))) + rest;
  }
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace mv::math
HWY_AFTER_NAMESPACE();

#endif
