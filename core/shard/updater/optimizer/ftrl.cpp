// FTRL-Proximal (McMahan et al., KDD 2013): g' = clip(rescale_grad g);  z += g' - (sqrt(n + g'^2) - sqrt(n)) w / lr;  n += g'^2;
// w = 0 where |z| <= lamda1, else (sign(z) lamda1 - z) / ((beta + sqrt(n)) / lr + wd)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/ftrl.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void ftrl(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const T rate = static_cast<T>(n[kRate]), lamda1 = static_cast<T>(n[kOwn]), beta = static_cast<T>(n[kOwn + 1]);
  const Arrays<T> a(block);
  T* const zs = a.state(0);
  T* const ns = a.state(1);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = gradient.plain(tag, a.g + i), before = load(tag, ns + i);
    const auto sum = hn::Add(before, hn::Mul(g, g)), root = hn::Sqrt(sum), per_rate = all(tag, rate);
    const auto pull = hn::Div(hn::Mul(hn::Sub(root, hn::Sqrt(before)), w), per_rate);
    const auto z = hn::Add(load(tag, zs + i), hn::Sub(g, pull)), bound = all(tag, lamda1);
    const auto scale = hn::Add(hn::Div(hn::Add(all(tag, beta), root), per_rate), all(tag, gradient.decay));
    const auto solved = hn::Div(hn::Sub(hn::CopySign(bound, z), z), scale);
    store(z, tag, zs + i);
    store(sum, tag, ns + i);
    store(hn::IfThenZeroElse(hn::Le(hn::Abs(z), bound), solved), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(ftrl)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace ftrl {

MV_DISPATCH_FORMULA(ftrl)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.1, kAboveZero, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"lamda1", 0.01, 0, kAnySize, "L1 regularization: keeps values with little evidence at zero", {}, false, "lambda1"},
    {"beta", 1, 0, kAnySize, "smooths the rate of the first steps"},
};

constexpr Traits kTraits = {.is_lazy = always_lazy};

}  // namespace ftrl

constinit const Kind kFtrl = {"mx.ftrl", ftrl::kParameters, true, false, always<2>, ftrl::apply, &ftrl::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
