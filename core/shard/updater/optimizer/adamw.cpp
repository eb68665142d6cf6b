// AdamW (Loshchilov and Hutter, ICLR 2019), as in PyTorch: g' = clip(rescale_grad g);  w *= 1 - lr wd;
// m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g'^2;
// w -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/adamw.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

/// Corrections after the own parameters: 1 - lr wd, and 1 / sqrt(1 - beta2^t).
enum : size_t { kLeft = kOwn + 3, kRoot };

template <typename T>
HWY_INLINE void adamw(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const Mean<T> mean(n[kOwn]), square(n[kOwn + 1]);
  const T rate = static_cast<T>(n[kRate]), epsilon = static_cast<T>(n[kOwn + 2]);
  const T left = static_cast<T>(n[kLeft]), root = static_cast<T>(n[kRoot]);
  const Arrays<T> a(block);
  T* const ms = a.state(0);
  T* const vs = a.state(1);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto g = gradient.plain(tag, a.g + i);
    const auto m = mean.of(tag, load(tag, ms + i), g), v = square.of(tag, load(tag, vs + i), hn::Mul(g, g));
    store(m, tag, ms + i);
    store(v, tag, vs + i);
    const auto scale = hn::Add(hn::Mul(hn::Sqrt(v), all(tag, root)), all(tag, epsilon));
    const auto w = hn::Mul(load(tag, a.w + i), all(tag, left));
    store(hn::Sub(w, hn::Div(hn::Mul(all(tag, rate), m), scale)), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(adamw)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace adamw {

using HWY_NAMESPACE::kLeft, HWY_NAMESPACE::kRoot;

MV_DISPATCH_FORMULA(adamw)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.001, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"beta1", 0.9, 0, kBelowOne, "decay factor of the mean of gradients"},
    {"beta2", 0.999, 0, kBelowOne, "decay factor of the mean of squared gradients"},
    {"epsilon", 1e-8, 0, kAnySize, "keeps the division finite"},
};

void correct(double* n, uint64_t count, std::span<const double>) {
  const auto t = static_cast<double>(count);
  n[kLeft] = 1 - n[kRate] * n[kDecay];
  n[kRoot] = 1 / std::sqrt(1 - std::pow(n[kOwn + 1], t));
  n[kRate] /= 1 - std::pow(n[kOwn], t);
}
constexpr Traits kTraits = {.correct = correct};

}  // namespace adamw

constinit const Kind kAdamw = {"mx.adamw", adamw::kParameters, true, false, always<2>, adamw::apply, &adamw::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
