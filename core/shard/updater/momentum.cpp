// Gradient descent with momentum (Polyak 1964; Nesterov's variant in the form of Sutskever et al., ICML 2013):
//   g' = g + decay w;  v = momentum v + (1 - dampening) g';  w -= rate v, or rate (g' + momentum v) with nesterov
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/momentum.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void momentum(const double* parameters, const Block& block) {
  const T rate = static_cast<T>(parameters[0]), keep = static_cast<T>(parameters[1]);
  const T take = static_cast<T>(1 - parameters[2]), decay = static_cast<T>(parameters[4]);
  const bool nesterov = parameters[3] != 0;
  const Arrays<T> a(block);
  T* const v = a.state(0);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i);
    const auto g = decayed(tag, load(tag, a.g + i), w, decay);
    const auto speed = hn::Add(hn::Mul(hn::Set(tag, keep), load(tag, v + i)), hn::Mul(hn::Set(tag, take), g));
    const auto step = nesterov ? hn::Add(g, hn::Mul(hn::Set(tag, keep), speed)) : speed;
    store(speed, tag, v + i);
    store(hn::Sub(w, hn::Mul(hn::Set(tag, rate), step)), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(momentum)

}  // namespace mv::shard::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard {
namespace momentum {

MV_DISPATCH_FORMULA(momentum)

constexpr Parameter kParameters[] = {
    {"rate", 0.01, 0, kAnySize, "the learning rate"},
    {"momentum", 0.9, 0, 1, "decay factor of the velocity"},
    {"dampening", 0, 0, 1, "share of the gradient left out of the velocity"},
    {"nesterov", 0, 0, 1, "1: Nesterov momentum, which looks one step ahead"},
    {"decay", 0, 0, kAnySize, "weight decay: how much of w is added to the gradient"},
};

}  // namespace momentum

constinit const Kind kMomentum = {"momentum", momentum::kParameters, true, false, always<1>, momentum::apply};

}  // namespace mv::shard
#endif  // HWY_ONCE
