// Delay-compensated asynchronous SGD (Zheng et al., ICML 2017): w -= rate (g + lambda g^2 (w - b)), where b is the
// value that the adding worker last got. With mean_square = m > 0, lambda is divided by sqrt(M + epsilon), where
// M = m M + (1 - m) g^2. Values that the worker never got are not compensated.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/dcasgd.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::HWY_NAMESPACE {

template <typename T>
HWY_INLINE void dcasgd(const double* parameters, const Block& block) {
  const T rate = static_cast<T>(parameters[0]), lambda = static_cast<T>(parameters[1]);
  const T keep = static_cast<T>(parameters[2]), take = static_cast<T>(1 - parameters[2]),
          epsilon = static_cast<T>(parameters[3]);
  const Arrays<T> a(block);
  const bool adapts = parameters[2] > 0;
  T* const squares = a.state_if(adapts, 0);
  const T* const backup = reinterpret_cast<const T*>(block.backup);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = load(tag, a.g + i), square = hn::Mul(g, g);
    auto weight = hn::Set(tag, lambda);
    if (adapts) {
      const auto mean =
          hn::Add(hn::Mul(hn::Set(tag, keep), load(tag, squares + i)), hn::Mul(hn::Set(tag, take), square));
      weight = hn::Div(weight, hn::Sqrt(hn::Add(mean, hn::Set(tag, epsilon))));
      store(mean, tag, squares + i);
    }
    auto step = g;
    if (backup != nullptr) {
      const hn::RebindToUnsigned<decltype(tag)> bits;
      const auto b = hn::BitCast(tag, hn::Not(hn::BitCast(bits, load(tag, backup + i))));
      const auto late = hn::Mul(hn::Mul(weight, square), hn::Sub(w, b));
      step = hn::IfThenElse(hn::Eq(b, b), hn::Add(g, late), g);
    }
    store(hn::Sub(w, hn::Mul(hn::Set(tag, rate), step)), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(dcasgd)

}  // namespace mv::shard::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard {
namespace dcasgd {

MV_DISPATCH_FORMULA(dcasgd)

constexpr Parameter kParameters[] = {
    {"rate", 0.01, 0, kAnySize, "the learning rate"},
    {"lambda", 0.04, 0, kAnySize, "strength of the delay compensation"},
    {"mean_square", 0, 0, 1, "above 0: lambda is divided by the root of a moving mean of g^2 with this decay factor"},
    {"epsilon", 1e-7, kAboveZero, kAnySize, "keeps that division finite"},
};

size_t states(std::span<const double> parameters) { return parameters[2] > 0 ? 1 : 0; }

}  // namespace dcasgd

constinit const Kind kDcasgd = {"dcasgd", dcasgd::kParameters, true, true, dcasgd::states, dcasgd::apply};

}  // namespace mv::shard
#endif  // HWY_ONCE
