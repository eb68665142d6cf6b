// FTML (Zheng and Kwok, ICML 2017): g' = clip(rescale_grad g + wd w);  v = beta2 v + (1 - beta2) g'^2;
// d' = (1 - beta1^t) / lr (sqrt(v / (1 - beta2^t)) + epsilon);  z = beta1 z + (1 - beta1) g' - (d' - beta1 d) w;
// w = -z / d'
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/ftml.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

/// Corrections after the own parameters: (1 - beta1^t) / lr, and 1 / (1 - beta2^t).
enum : size_t { kPerRate = kOwn + 3, kGrow };

template <typename T>
HWY_INLINE void ftml(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const Mean<T> mean(n[kOwn]), square(n[kOwn + 1]);
  const T epsilon = static_cast<T>(n[kOwn + 2]), per_rate = static_cast<T>(n[kPerRate]),
          grow = static_cast<T>(n[kGrow]);
  const Arrays<T> a(block);
  T* const ds = a.state(0);
  T* const vs = a.state(1);
  T* const zs = a.state(2);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = gradient.decayed_first(tag, a.g + i, w);
    const auto v = square.of(tag, load(tag, vs + i), hn::Mul(g, g));
    const auto d = hn::Mul(all(tag, per_rate), hn::Add(hn::Sqrt(hn::Mul(v, all(tag, grow))), all(tag, epsilon)));
    const auto change = hn::Sub(d, hn::Mul(all(tag, mean.keep), load(tag, ds + i)));
    const auto z = hn::Sub(mean.of(tag, load(tag, zs + i), g), hn::Mul(change, w));
    store(d, tag, ds + i);
    store(v, tag, vs + i);
    store(z, tag, zs + i);
    store(hn::Div(hn::Neg(z), d), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(ftml)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace ftml {

using HWY_NAMESPACE::kPerRate, HWY_NAMESPACE::kGrow;

MV_DISPATCH_FORMULA(ftml)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.01, kAboveZero, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"beta1", 0.6, 0, kBelowOne, "decay factor of the mean of gradients"},
    {"beta2", 0.999, 0, kBelowOne, "decay factor of the mean of squared gradients"},
    {"epsilon", 1e-8, kAboveZero, kAnySize, "keeps the division finite"},
};

void correct(double* n, uint64_t count, std::span<const double>) {
  const auto t = static_cast<double>(count);
  n[kPerRate] = (1 - std::pow(n[kOwn], t)) / n[kRate];
  n[kGrow] = 1 / (1 - std::pow(n[kOwn + 1], t));
}
constexpr Traits kTraits = {.correct = correct};

}  // namespace ftml

constinit const Kind kFtml = {"mx.ftml", ftml::kParameters, true, false, always<3>, ftml::apply, &ftml::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
