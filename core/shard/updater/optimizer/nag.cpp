// Nesterov's accelerated gradient: g' = clip(rescale_grad g) + wd w;  m = momentum m - lr g';  w += momentum m - lr g',
// without momentum w -= lr g'
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/nag.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void nag(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const T rate = static_cast<T>(n[kRate]), keep = static_cast<T>(n[kOwn]);
  const Arrays<T> a(block);
  T* const m = a.state_if(keep != 0, 0);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i);
    auto step = hn::Mul(all(tag, rate), gradient.then_decayed(tag, a.g + i, w));
    if (keep != 0) {
      const auto speed = hn::Sub(hn::Mul(all(tag, keep), load(tag, m + i)), step);
      store(speed, tag, m + i);
      step = hn::Sub(step, hn::Mul(all(tag, keep), speed));
    }
    store(hn::Sub(w, step), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(nag)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace nag {

MV_DISPATCH_FORMULA(nag)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.01, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"momentum", 0, 0, 1, "decay factor of the velocity"},
    {"multi_precision", 0, 0, 1, "ignored: 16-bit floats are always updated in 32 bits"},
};

size_t states(std::span<const double> parameters) { return parameters[1] != 0 ? 1 : 0; }
constexpr Traits kTraits = {};

}  // namespace nag

constinit const Kind kNag = {"mx.nag", nag::kParameters, true, false, nag::states, nag::apply, &nag::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
