// AdaDelta (Zeiler 2012): g' = clip(rescale_grad g);  a = rho a + (1 - rho) g'^2;
// step = sqrt(d + epsilon) / sqrt(a + epsilon) g';  d = rho d + (1 - rho) step^2;  w -= step + wd w
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/adadelta.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void adadelta(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const T keep = static_cast<T>(n[kOwn]), take = static_cast<T>(1 - n[kOwn]), epsilon = static_cast<T>(n[kOwn + 1]);
  const Arrays<T> a(block);
  T* const squares = a.state(0);
  T* const steps = a.state(1);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = gradient.plain(tag, a.g + i), before = load(tag, steps + i);
    const auto mean = [&](auto old, auto fresh) HWY_ATTR {
      return hn::Add(hn::Mul(all(tag, keep), old), hn::Mul(all(tag, take), hn::Mul(fresh, fresh)));
    };
    const auto square = mean(load(tag, squares + i), g);
    const auto scale =
        hn::Div(hn::Sqrt(hn::Add(before, all(tag, epsilon))), hn::Sqrt(hn::Add(square, all(tag, epsilon))));
    const auto step = hn::Mul(scale, g);
    store(square, tag, squares + i);
    store(mean(before, step), tag, steps + i);
    store(hn::Sub(w, hn::Add(step, hn::Mul(all(tag, gradient.decay), w))), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(adadelta)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace adadelta {

MV_DISPATCH_FORMULA(adadelta)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.01, 0, kAnySize, "ignored: AdaDelta has no learning rate"},
    {"rho", 0.9, 0, 1, "decay factor of the means"},
    {"epsilon", 1e-5, kAboveZero, kAnySize, "keeps the division finite, and the first steps from being zero"},
};

constexpr Traits kTraits = {};

}  // namespace adadelta

constinit const Kind kAdadelta = {"mx.adadelta", adadelta::kParameters, true, false, always<2>, adadelta::apply, &adadelta::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
