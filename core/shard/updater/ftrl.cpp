// FTRL-Proximal for each coordinate (McMahan et al., KDD 2013, algorithm 1):
//   n' = n + g^2;  z += g - (sqrt(n') - sqrt(n)) / alpha w;  n = n'
//   w = 0 where |z| <= l1, else (sign(z) l1 - z) / ((beta + sqrt(n)) / alpha + l2)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/ftrl.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void ftrl(const double* parameters, const Block& block) {
  const T alpha = static_cast<T>(parameters[0]), beta = static_cast<T>(parameters[1]);
  const T l1 = static_cast<T>(parameters[2]), l2 = static_cast<T>(parameters[3]);
  const Arrays<T> a(block);
  T* const zs = a.state(0);
  T* const ns = a.state(1);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = load(tag, a.g + i), before = load(tag, ns + i);
    const auto n = hn::Add(before, hn::Mul(g, g));
    const auto root = hn::Sqrt(n), per_alpha = hn::Set(tag, alpha);
    const auto sigma = hn::Div(hn::Sub(root, hn::Sqrt(before)), per_alpha);
    const auto z = hn::Add(load(tag, zs + i), hn::Sub(g, hn::Mul(sigma, w)));
    const auto bound = hn::Set(tag, l1);
    const auto scale = hn::Add(hn::Div(hn::Add(hn::Set(tag, beta), root), per_alpha), hn::Set(tag, l2));
    const auto solved = hn::Div(hn::Sub(hn::CopySign(bound, z), z), scale);
    store(z, tag, zs + i);
    store(n, tag, ns + i);
    store(hn::IfThenZeroElse(hn::Le(hn::Abs(z), bound), solved), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(ftrl)

}  // namespace mv::shard::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard {
namespace ftrl {

MV_DISPATCH_FORMULA(ftrl)

constexpr Parameter kParameters[] = {
    {"alpha", 0.1, kAboveZero, kAnySize, "the learning rate"},
    {"beta", 1, 0, kAnySize, "smooths the learning rate of the first steps"},
    {"l1", 0, 0, kAnySize, "L1 regularization: keeps values with little evidence at zero"},
    {"l2", 0, 0, kAnySize, "L2 regularization: pulls values towards zero"},
};

}  // namespace ftrl

constinit const Kind kFtrl = {"ftrl", ftrl::kParameters, true, false, always<2>, ftrl::apply};

}  // namespace mv::shard
#endif  // HWY_ONCE
