// DC-ASGD (Zheng et al., ICML 2017) as in MXNet, which uses the value before the last update instead of the worker's:
// g' = clip(rescale_grad g);  m = momentum m - lr (g' + wd w + lamda g'^2 (w - previous));  w += m
// The state holds w - previous, the change by the last update: zero at first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/dcasgd.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void dcasgd(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const T rate = static_cast<T>(n[kRate]), keep = static_cast<T>(n[kOwn]), lamda = static_cast<T>(n[kOwn + 1]);
  const Arrays<T> a(block);
  T* const changes = a.state(0);
  T* const speeds = a.state_if(keep != 0, 1);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = gradient.plain(tag, a.g + i);
    const auto late = hn::Mul(hn::Mul(all(tag, lamda), hn::Mul(g, g)), load(tag, changes + i));
    const auto slope = hn::Add(hn::Add(g, hn::Mul(all(tag, gradient.decay), w)), late);
    auto step = hn::Mul(all(tag, rate), slope);
    if (keep != 0) {
      step = hn::Sub(step, hn::Mul(all(tag, keep), load(tag, speeds + i)));
      store(hn::Neg(step), tag, speeds + i);
    }
    const auto next = hn::Sub(w, step);
    store(hn::Sub(next, w), tag, changes + i);
    store(next, tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(dcasgd)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace dcasgd {

MV_DISPATCH_FORMULA(dcasgd)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.01, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"momentum", 0, 0, 1, "decay factor of the velocity"},
    {"lamda", 0.04, 0, kAnySize, "strength of the delay compensation", {}, false, "lambda"},
};

size_t states(std::span<const double> parameters) { return parameters[1] != 0 ? 2 : 1; }
constexpr Traits kTraits = {};

}  // namespace dcasgd

constinit const Kind kDcasgd = {"mx.dcasgd", dcasgd::kParameters, true, false, dcasgd::states, dcasgd::apply, &dcasgd::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
