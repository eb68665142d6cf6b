// Nadam (Dozat 2015) as in MXNet: g' = clip(rescale_grad g + wd w);  s(t) = beta1 (1 - 0.96^(t schedule_decay) / 2);
// P, which all tensors share, *= s(t);  m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g'^2;
// w -= lr ((1 - s(t)) g' / (1 - P) + s(t + 1) m / (1 - P s(t + 1))) / (sqrt(v / (1 - beta2^t)) + epsilon)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shard/updater/optimizer/nadam.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include "shard/updater/optimizer/formula-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace mv::shard::optimizer::HWY_NAMESPACE {

/// Corrections after the own parameters: the factors of g' and m, and 1 / (1 - beta2^t).
enum : size_t { kOfGradient = kOwn + 4, kOfMean, kOfSquares };

template <typename T>
HWY_INLINE void nadam(const double* n, const Block& block) {
  const Gradient<T> gradient(n);
  const T rate = static_cast<T>(n[kRate]), epsilon = static_cast<T>(n[kOwn + 2]);
  const T keep1 = static_cast<T>(n[kOwn]), take1 = static_cast<T>(1 - n[kOwn]);
  const T keep2 = static_cast<T>(n[kOwn + 1]), take2 = static_cast<T>(1 - n[kOwn + 1]);
  const T of_gradient = static_cast<T>(n[kOfGradient]), of_mean = static_cast<T>(n[kOfMean]),
          grow = static_cast<T>(n[kOfSquares]);
  const Arrays<T> a(block);
  T* const ms = a.state(0);
  T* const vs = a.state(1);
  each<T>(block, [&](auto tag, size_t i) HWY_ATTR {
    const auto w = load(tag, a.w + i), g = gradient.decayed_first(tag, a.g + i, w);
    const auto m = hn::Add(hn::Mul(all(tag, keep1), load(tag, ms + i)), hn::Mul(all(tag, take1), g));
    const auto v = hn::Add(hn::Mul(all(tag, keep2), load(tag, vs + i)), hn::Mul(all(tag, take2), hn::Mul(g, g)));
    store(m, tag, ms + i);
    store(v, tag, vs + i);
    const auto bar = hn::Add(hn::Mul(all(tag, of_gradient), g), hn::Mul(all(tag, of_mean), m));
    const auto scale = hn::Add(hn::Sqrt(hn::Mul(v, all(tag, grow))), all(tag, epsilon));
    store(hn::Sub(w, hn::Div(hn::Mul(all(tag, rate), bar), scale)), tag, a.w + i);
  });
}
MV_INSTANTIATE_FORMULA(nadam)

}  // namespace mv::shard::optimizer::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mv::shard::optimizer {
namespace nadam {

using HWY_NAMESPACE::kOfGradient, HWY_NAMESPACE::kOfMean, HWY_NAMESPACE::kOfSquares;

MV_DISPATCH_FORMULA(nadam)

constexpr Parameter kParameters[] = {
    {"learning_rate", 0.001, 0, kAnySize, "the learning rate; with a schedule, the initial one"},
    {"beta1", 0.9, 0, kBelowOne, "decay factor of the mean of gradients"},
    {"beta2", 0.999, 0, kBelowOne, "decay factor of the mean of squared gradients"},
    {"epsilon", 1e-8, 0, kAnySize, "keeps the division finite"},
    {"schedule_decay", 0.004, 0, kAnySize, "how fast the momentum approaches beta1"},
};

double momentum_at(const double* n, uint64_t count) {
  return n[kOwn] * (1 - 0.5 * std::pow(0.96, static_cast<double>(count) * n[kOwn + 3]));
}

/// shared[0] is P.
void advance(const double* n, uint64_t count, std::span<double> shared) { shared[0] *= momentum_at(n, count); }

void correct(double* n, uint64_t count, std::span<const double> shared) {
  const double now = momentum_at(n, count), next = momentum_at(n, count + 1);
  n[kOfGradient] = (1 - now) / (1 - shared[0]);
  n[kOfMean] = next / (1 - shared[0] * next);
  n[kOfSquares] = 1 / (1 - std::pow(n[kOwn + 1], static_cast<double>(count)));
}

constexpr double kShared[] = {1};
constexpr Traits kTraits = {.correct = correct, .shared = kShared, .advance = advance};

}  // namespace nadam

constinit const Kind kNadam = {"mx.nadam", nadam::kParameters, true, false, always<2>, nadam::apply, &nadam::kTraits};

}  // namespace mv::shard::optimizer
#endif  // HWY_ONCE
