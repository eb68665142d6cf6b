// Signum (Bernstein et al., ICML 2018): m = momentum m - (1 - momentum) (wd w + clip(rescale_grad g));
// w = (1 - lr wd_lh) w + lr sign(m), without momentum w = (1 - lr wd) w - lr sign(g)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/signum.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void signum(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const Mean<T> mean(n[kOwn]);
  const T rate = static_cast<T>(n[kRate]);
  const bool has_speed = n[kOwn] != 0;
  const T left = static_cast<T>(1 - n[kRate] * (has_speed ? n[kOwn + 1] : n[kDecay]));
  const Arrays<T> a(block);
  T* const m = a.state_if(has_speed, 0);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i);
    auto direction = hn::Neg(load(tag, a.g + i));
    if (has_speed) {
      direction = mean.of(tag, load(tag, m + i), hn::Neg(gradient.then_decayed(tag, a.g + i, w)));
      store(direction, tag, m + i);
    }
    store(hn::Add(hn::Mul(all(tag, left), w), hn::Mul(all(tag, rate), sign_of(tag, direction))), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(signum)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace signum {

MV_DISPATCH_FORMULA(signum)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.01, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"momentum", 0.9, 0, 1, "decay factor of the direction"},
    {"wd_lh", 0, 0, kAnySize, "decoupled weight decay (Loshchilov and Hutter)"},
};

size_t states(std::span<const double> parameters) { return parameters[1] != 0 ? 1 : 0; }
constexpr Traits kTraits = {};

}  // namespace signum

constinit const Kind kSignum = {"mx.signum", signum::kParameters, true, false, signum::states, signum::apply, &signum::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
