// Lion (Chen et al., NeurIPS 2023): g' = clip(rescale_grad g);  w -= lr (sign(beta1 m + (1 - beta1) g') + wd w);
// m = beta2 m + (1 - beta2) g'
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/lion.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void lion(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const Mean<T> ahead(n[kOwn]), mean(n[kOwn + 1]);
  const T rate = static_cast<T>(n[kRate]);
  const Arrays<T> a(block);
  T* const ms = a.state(0);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = gradient.plain(tag, a.g + i), m = load(tag, ms + i);
    const auto step = hn::Add(sign_of(tag, ahead.of(tag, m, g)), hn::Mul(all(tag, gradient.decay), w));
    store(mean.of(tag, m, g), tag, ms + i);
    store(hn::Sub(w, hn::Mul(all(tag, rate), step)), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(lion)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace lion {

MV_DISPATCH_FORMULA(lion)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.0001, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"beta1", 0.9, 0, kBelowOne, "weight of the mean in the direction"},
    {"beta2", 0.99, 0, kBelowOne, "decay factor of the mean of gradients"},
};

constexpr Traits kTraits = {};

}  // namespace lion

constinit const Kind kLion = {"mx.lion", lion::kParameters, true, false, always<1>, lion::apply, &lion::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
