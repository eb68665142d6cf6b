// RMSProp: g' = clip(rescale_grad g + wd w);  n = gamma1 n + (1 - gamma1) g'^2
//   plain (Tieleman and Hinton 2012): w -= lr g' / sqrt(n + epsilon)
//   centered (Graves 2013): a = gamma1 a + (1 - gamma1) g';  d = gamma2 d - lr g' / sqrt(n - a^2 + epsilon);  w += d
// Then w is clipped to +- clip_weights. n - a^2 is a variance: if rounding makes it negative, it is set to zero.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/rmsprop.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void rmsprop(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const Mean<T> mean(n[kOwn]);
  const T rate = static_cast<T>(n[kRate]), keep = static_cast<T>(n[kOwn + 1]), epsilon = static_cast<T>(n[kOwn + 2]);
  const bool centered = n[kOwn + 3] != 0;
  const T most = static_cast<T>(n[kOwn + 4]);
  const Arrays<T> a(block);
  T* const squares = a.state(0);
  T* const means = a.state_if(centered, 1);
  T* const deltas = a.state_if(centered, 2);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = gradient.decayed_first(tag, a.g + i, w);
    const auto square = mean.of(tag, load(tag, squares + i), hn::Mul(g, g));
    store(square, tag, squares + i);
    auto variance = square;
    if (centered) {
      const auto average = mean.of(tag, load(tag, means + i), g);
      store(average, tag, means + i);
      const auto left = hn::Sub(square, hn::Mul(average, average));
      variance = hn::IfThenZeroElse(hn::Lt(left, hn::Zero(tag)), left);
    }
    auto step = hn::Mul(all(tag, rate), hn::Div(g, hn::Sqrt(hn::Add(variance, all(tag, epsilon)))));
    if (centered) {
      step = hn::Sub(step, hn::Mul(all(tag, keep), load(tag, deltas + i)));
      store(hn::Neg(step), tag, deltas + i);
    }
    const auto next = hn::Sub(w, step);
    store(most > 0 ? clipped(tag, next, most) : next, tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(rmsprop)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace rmsprop {

MV_DISPATCH_FORMULA(rmsprop)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.001, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"gamma1", 0.9, 0, kBelowOne, "decay factor of the means"},
    {"gamma2", 0.9, 0, 1, "centered: decay factor of the velocity"},
    {"epsilon", 1e-8, kAboveZero, kAnySize, "keeps the division finite"},
    {"centered", 0, 0, 1, "1: the centered form, by Graves"},
    {"clip_weights", 0, 0, kAnySize, "values are clipped to +- this; 0: no clipping"},
};

size_t states(std::span<const double> parameters) { return parameters[4] != 0 ? 3 : 1; }
constexpr Traits kTraits = {};

}  // namespace rmsprop

constinit const Kind kRmsprop = {"mx.rmsprop", rmsprop::kParameters, true, false, rmsprop::states, rmsprop::apply, &rmsprop::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
