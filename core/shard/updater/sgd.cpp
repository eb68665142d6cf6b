// Stochastic gradient descent: w -= rate (g + decay w).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/sgd.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void sgd(const double* parameters, const Block& block) {
  const T rate = static_cast<T>(parameters[0]), decay = static_cast<T>(parameters[1]);
  const Arrays<T> a(block);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i);
    const auto g = decayed(tag, load(tag, a.g + i), w, decay);
    store(hn::Sub(w, hn::Mul(hn::Set(tag, rate), g)), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(sgd)

}  // namespace mv::shard::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard {
namespace sgd {

MV_DISPATCH_FORMULA(sgd)

constexpr Parameter kParameters[] = {
    {"rate", 0.01, 0, kAnySize, "the learning rate"},
    {"decay", 0, 0, kAnySize, "weight decay: how much of w is added to the gradient"},
};

}  // namespace sgd

constinit const Kind kSgd = {"sgd", sgd::kParameters, true, false, always<0>, sgd::apply};

}  // namespace mv::shard
#endif  // HWY_ONCE
