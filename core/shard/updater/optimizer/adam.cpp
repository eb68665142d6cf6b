// Adam (Kingma and Ba, ICLR 2015): g' = clip(rescale_grad g + wd w);  m = beta1 m + (1 - beta1) g';
// v = beta2 v + (1 - beta2) g'^2;  w -= lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/adam.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void adam(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const Mean<T> mean(n[kOwn]), square(n[kOwn + 1]);
  const T rate = static_cast<T>(n[kRate]), epsilon = static_cast<T>(n[kOwn + 2]);
  const Arrays<T> a(block);
  T* const ms = a.state(0);
  T* const vs = a.state(1);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = gradient.decayed_first(tag, a.g + i, w);
    const auto m = mean.of(tag, load(tag, ms + i), g), v = square.of(tag, load(tag, vs + i), hn::Mul(g, g));
    store(m, tag, ms + i);
    store(v, tag, vs + i);
    const auto step = hn::Div(hn::Mul(all(tag, rate), m), hn::Add(hn::Sqrt(v), all(tag, epsilon)));
    store(hn::Sub(w, step), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(adam)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace adam {

MV_DISPATCH_FORMULA(adam)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.001, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"beta1", 0.9, 0, kBelowOne, "decay factor of the mean of gradients"},
    {"beta2", 0.999, 0, kBelowOne, "decay factor of the mean of squared gradients"},
    {"epsilon", 1e-8, 0, kAnySize, "keeps the division finite"},
    {"lazy_update", 1, 0, 1, "1: rows without a gradient stay as they are"},
};

void correct(double* n, uint64_t count, std::span<const double>) {
  const auto t = static_cast<double>(count);
  n[kRate] *= std::sqrt(1 - std::pow(n[kOwn + 1], t)) / (1 - std::pow(n[kOwn], t));
}
bool is_lazy(std::span<const double> parameters) { return parameters[4] != 0; }
constexpr Traits kTraits = {.correct = correct, .is_lazy = is_lazy};

}  // namespace adam

constinit const Kind kAdam = {"mx.adam", adam::kParameters, true, false, always<2>, adam::apply, &adam::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
