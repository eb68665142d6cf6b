// AdaGrad (Duchi et al., JMLR 2011): g' = clip(rescale_grad g);  h += g'^2;  w -= lr (g' / sqrt(h + eps) + wd w)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/adagrad.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void adagrad(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const T rate = static_cast<T>(n[kRate]), eps = static_cast<T>(n[kOwn]);
  const Arrays<T> a(block);
  T* const hs = a.state(0);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = gradient.plain(tag, a.g + i);
    const auto h = hn::Add(load(tag, hs + i), hn::Mul(g, g));
    store(h, tag, hs + i);
    const auto step = hn::Add(hn::Div(g, hn::Sqrt(hn::Add(h, all(tag, eps)))), hn::Mul(w, all(tag, gradient.decay)));
    store(hn::Sub(w, hn::Mul(all(tag, rate), step)), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(adagrad)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace adagrad {

MV_DISPATCH_FORMULA(adagrad)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.01, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"eps", 1e-7, 0, kAnySize, "keeps the first steps finite", {}, false, "float_stable_eps"},
};

constexpr Traits kTraits = {.is_lazy = always_lazy};

}  // namespace adagrad

constinit const Kind kAdagrad = {"mx.adagrad", adagrad::kParameters, true, false, always<1>, adagrad::apply, &adagrad::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
