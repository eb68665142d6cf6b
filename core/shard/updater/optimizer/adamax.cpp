// AdaMax (Kingma and Ba, ICLR 2015, section 7): g' = clip(rescale_grad g + wd w);  m = beta1 m + (1 - beta1) g';
// u = max(beta2 u, |g'|);  w -= lr / (1 - beta1^t) m / u, unchanged while u is zero
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/adamax.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void adamax(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const T rate = static_cast<T>(n[kRate]), keep = static_cast<T>(n[kOwn]), take = static_cast<T>(1 - n[kOwn]),
          shrink = static_cast<T>(n[kOwn + 1]);
  const Arrays<T> a(block);
  T* const ms = a.state(0);
  T* const us = a.state(1);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = gradient.decayed_first(tag, a.g + i, w);
    const auto m = hn::Add(hn::Mul(all(tag, keep), load(tag, ms + i)), hn::Mul(all(tag, take), g));
    const auto old = hn::Mul(all(tag, shrink), load(tag, us + i)), fresh = hn::Abs(g);
    const auto u = hn::IfThenElse(hn::Gt(old, fresh), old, fresh);
    store(m, tag, ms + i);
    store(u, tag, us + i);
    const auto step = hn::Div(hn::Mul(all(tag, rate), m), u);
    store(hn::Sub(w, hn::IfThenZeroElse(hn::Eq(u, hn::Zero(tag)), step)), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(adamax)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace adamax {

MV_DISPATCH_FORMULA(adamax)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.002, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"beta1", 0.9, 0, kBelowOne, "decay factor of the mean of gradients"},
    {"beta2", 0.999, 0, kBelowOne, "decay factor of the largest gradient"},
};

void correct(double* n, uint64_t count, std::span<const double>) {
  n[kRate] /= 1 - std::pow(n[kOwn], static_cast<double>(count));
}
constexpr Traits kTraits = {.correct = correct};

}  // namespace adamax

constinit const Kind kAdamax = {"mx.adamax", adamax::kParameters, true, false, always<2>, adamax::apply, &adamax::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
