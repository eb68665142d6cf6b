// AdaGrad (Duchi et al., JMLR 2011): g' = g + decay w;  s += g'^2;  w -= rate g' / (sqrt(s) + epsilon).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/adagrad.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void adagrad(const double* parameters, const Block& block) {
  const T rate = static_cast<T>(parameters[0]), epsilon = static_cast<T>(parameters[1]),
          decay = static_cast<T>(parameters[2]);
  const Arrays<T> a(block);
  T* const s = a.state(0);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i);
    const auto g = decayed(tag, load(tag, a.g + i), w, decay);
    const auto sum = hn::Add(load(tag, s + i), hn::Mul(g, g));
    const auto step = hn::Div(hn::Mul(hn::Set(tag, rate), g), hn::Add(hn::Sqrt(sum), hn::Set(tag, epsilon)));
    store(sum, tag, s + i);
    store(hn::Sub(w, step), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(adagrad)

}  // namespace mv::shard::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard {
namespace adagrad {

MV_DISPATCH_FORMULA(adagrad)

constexpr Parameter kParameters[] = {
    {"rate", 0.01, 0, kAnySize, "the learning rate"},
    {"epsilon", 1e-10, kAboveZero, kAnySize, "keeps the first steps finite"},
    {"decay", 0, 0, kAnySize, "weight decay: how much of w is added to the gradient"},
};

}  // namespace adagrad

constinit const Kind kAdagrad = {"adagrad", adagrad::kParameters, true, false, always<1>, adagrad::apply};

}  // namespace mv::shard
#endif  // HWY_ONCE
