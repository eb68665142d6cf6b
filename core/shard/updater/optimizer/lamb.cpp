// LAMB (You et al., ICLR 2020): g' = clip(rescale_grad g);  m = beta1 m + (1 - beta1) g';
// v = beta2 v + (1 - beta2) g'^2;  step = m^ / (sqrt(v^) + epsilon) + wd w, where m^ = m / (1 - beta1^t) and
// v^ = v / (1 - beta2^t), or m and v without bias_correction;  w -= lr |w| / |step| step, with |w| clipped to
// lower_bound .. upper_bound, or w -= lr step if a norm is zero
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/lamb.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

/// Corrections after the own parameters: 1 / (1 - beta1^t) and 1 / (1 - beta2^t).
enum : size_t { kGrow1 = kOwn + 6, kGrow2 };

/// The step before scaling.
template <typename T>
struct LambStep {
  HWY_INLINE explicit LambStep(const double* n)
      : grow1(static_cast<T>(n[kGrow1])),
        grow2(static_cast<T>(n[kGrow2])),
        epsilon(static_cast<T>(n[kOwn + 2])),
        decay(static_cast<T>(n[kDecay])) {}
  template <class D>
  HWY_INLINE hn::Vec<D> operator()(D tag, hn::Vec<D> w, hn::Vec<D> m, hn::Vec<D> v) const {
    const auto scale = hn::Add(hn::Sqrt(hn::Mul(v, all(tag, grow2))), all(tag, epsilon));
    return hn::Add(hn::Div(hn::Mul(m, all(tag, grow1)), scale), hn::Mul(all(tag, decay), w));
  }
  const T grow1, grow2, epsilon, decay;
};

/// The factor of all steps of a tensor.
template <typename T>
HWY_INLINE T lamb_rate(const double* n, const Step& sums) {
  const auto [w2, step2] = sums.sums;
  double size = std::sqrt(w2);
  if (n[kOwn + 3] > 0) size = std::max(size, n[kOwn + 3]);
  if (n[kOwn + 4] > 0) size = std::min(size, n[kOwn + 4]);
  const double ratio = size == 0 || step2 == 0 ? 1 : size / std::sqrt(step2);
  return static_cast<T>(n[kRate] * ratio);
}
template <typename T>
HWY_INLINE void lamb_at(const double* n, const Block& block, T rate) {
  const LambStep<T> of(n);
  const Arrays<T> a(block);
  const T* const ms = a.state(0);
  const T* const vs = a.state(1);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), step = of(tag, w, load(tag, ms + i), load(tag, vs + i));
    store(hn::Sub(w, hn::Mul(all(tag, rate), step)), tag, a.w + i);
  });
}
template <typename T>
HWY_INLINE void lamb(const double* n, const Block& block) {
  lamb_at(n, block, lamb_rate<T>(n, *block.step));
}
MV_INSTANTIATE_FORMULA(lamb)

template <typename T>
HWY_INLINE void lamb_measure(const double* n, const Block& block, double* sums) {
  const Gradient<T> gradient(n);
  const Mean<T> mean(n[kOwn]), square(n[kOwn + 1]);
  const LambStep<T> of(n);
  const Arrays<T> a(block);
  Squares w2, step2;
  alignas(64) T steps[kAtOnce];
  for (size_t done = 0; done < block.count; done += kAtOnce) {
    Block some = block;
    some.count = std::min(size_t{kAtOnce}, block.count - done);
    T* const ms = a.state(0) + done;
    T* const vs = a.state(1) + done;
    each<T>(some, [&](auto tag, size_t i) HWY_ATTR {
      const auto g = gradient.plain(tag, a.g + done + i);
      const auto m = mean.of(tag, load(tag, ms + i), g), v = square.of(tag, load(tag, vs + i), hn::Mul(g, g));
      store(m, tag, ms + i);
      store(v, tag, vs + i);
      store(of(tag, load(tag, a.w + done + i), m, v), tag, steps + i);
    });
    w2.add(a.w + done, some.count);
    step2.add(steps, some.count);
  }
  sums[0] += w2.total();
  sums[1] += step2.total();
}
MV_INSTANTIATE_MEASURE(lamb_measure)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace lamb {

using HWY_NAMESPACE::kGrow1, HWY_NAMESPACE::kGrow2;

MV_DISPATCH_FORMULA(lamb)

MV_DISPATCH_MEASURE(lamb_measure)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.001, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"beta1", 0.9, 0, kBelowOne, "decay factor of the mean of gradients"},
    {"beta2", 0.999, 0, kBelowOne, "decay factor of the mean of squared gradients"},
    {"epsilon", 1e-6, 0, kAnySize, "keeps the division finite"},
    {"lower_bound", 0, 0, kAnySize, "lower bound of the norm of w; 0: none"},
    {"upper_bound", 0, 0, kAnySize, "upper bound of the norm of w; 0: none"},
    {"bias_correction", 1, 0, 1, "0: the means are not corrected"},
};

void correct(double* n, uint64_t count, std::span<const double>) {
  const auto t = static_cast<double>(count);
  const bool corrects = n[kOwn + 5] != 0;
  n[kGrow1] = corrects ? 1 / (1 - std::pow(n[kOwn], t)) : 1;
  n[kGrow2] = corrects ? 1 / (1 - std::pow(n[kOwn + 1], t)) : 1;
}
size_t sums(std::span<const double>) { return 2; }
constexpr Traits kTraits = {.correct = correct, .sums = sums, .measure = measure};

}  // namespace lamb

constinit const Kind kLamb = {"mx.lamb", lamb::kParameters, true, false, always<2>, lamb::apply, &lamb::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
